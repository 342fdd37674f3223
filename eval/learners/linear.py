"""What the linear-head learners share: flattening, a fixed scale, one head."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from curate.ground.errors import BadConfig
from eval.engine.linear import Floats, Head, LinearSettings, Net, Rule, fit, predict
from eval.engine.mlp import Mlp
from eval.learner import Array, Labels, Learner, Task

LEARNING_RATES = {"linear": LinearSettings.lr, "mlp": 0.1}  # [CLEAR, supplement 6]


@dataclass
class LinearLearner(Learner):
    """A softmax head on features, trained by SGD (CLEAR's linear probe by default).

    net: "linear", or "mlp" with one layer of `hidden` units (CLEAR: 2,048). lr: None is the net's own, 1 for linear
    and 0.1 for mlp, as in the paper. precision: "bfloat16" rounds the numbers that training multiplies. scale: "rms"
    divides inputs by one constant, the root mean squared length of the first training data, so that lr = 1 is stable
    whatever the features' unit; "none" leaves them as they are. device: "cpu", "cuda", or "auto".
    """

    lr: float | None = None
    momentum: float = LinearSettings.momentum
    weight_decay: float = LinearSettings.weight_decay
    batch: int = LinearSettings.batch
    epochs: int = LinearSettings.epochs
    decay_after: int = LinearSettings.decay_after
    decay: float = LinearSettings.decay
    scale: str = "rms"
    net: str = "linear"
    hidden: int = 2048
    precision: str = "float32"
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.lr is None:
            self.lr = LEARNING_RATES.get(self.net, LinearSettings.lr)

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """A new head; nothing is remembered."""
        if self.net not in LEARNING_RATES or self.precision not in ("float32", "bfloat16"):
            raise BadConfig(
                f"net is {self.net!r}, precision is {self.precision!r}.",
                "Expected linear or mlp, and float32 or bfloat16.",
            )
        self.task, self.rng, self.gradient_steps = task, rng, 0
        self.place = place(self.device)
        self.length: float | None = None
        self.reset()

    def reset(self) -> None:
        """New random weights."""
        width, classes = int(np.prod(self.task.x_shape)), self.task.n_classes
        self.head: Net
        if self.net == "mlp":
            self.head = Mlp.new(classes, width, self.hidden, self.rng, self.place, self.precision == "bfloat16")
        else:
            self.head = Head.new(classes, width, self.rng, self.place, self.precision == "bfloat16")

    def inputs(self, x: Array) -> Floats:
        """(N, ...) → (N, D) float32, scaled; uint8 images first become 0 … 1."""
        flat, by = self._plain(x)
        return np.asarray(flat, np.float32) if by == 1 else np.multiply(flat, np.float32(1 / by), dtype=np.float32)

    def _plain(self, x: Array) -> tuple[Array, float]:
        """(N, ...) → (N, D) as they are, and what they are to be divided by."""
        flat = np.asarray(x).reshape(len(x), -1)
        length = self.length if self.scale == "rms" and self.length else 1.0
        return flat, length * (255 if flat.dtype == np.uint8 else 1)

    def train(self, x: Array, y: Labels, memory: tuple[Array, Labels] | None = None, rule: Rule | None = None) -> None:
        """One training run over (x, y) with a new optimiser. rule: what the method adds to plain SGD."""
        if self.length is None:
            plain = np.asarray(self.inputs(x), np.float64)
            self.length = float(np.sqrt((plain**2).sum(1).mean())) or 1.0
        settings = LinearSettings(
            self.lr or LEARNING_RATES[self.net],
            self.momentum,
            self.weight_decay,
            self.batch,
            self.epochs,
            self.decay_after,
            self.decay,
        )
        replay = None if memory is None else (self.inputs(memory[0]), memory[1])
        self.gradient_steps += fit(self.head, self.inputs(x), np.asarray(y, np.int64), settings, self.rng, replay, rule)

    def predict(self, x: Array) -> Labels:
        """Class of the highest score."""
        flat, by = self._plain(x)
        return predict(self.head, np.asarray(flat, np.float32), by)

    def learn(self, x: Array, y: Labels) -> None:
        """Train on this data, from the weights at hand."""
        self.train(x, y)


def place(device: str) -> str:
    """ "auto" → "cuda" where there is one. Raises BadConfig for a GPU where there is none."""
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise BadConfig(f"device is {device!r}.", "No CUDA device is visible.", "Use cpu or auto.")
    return device
