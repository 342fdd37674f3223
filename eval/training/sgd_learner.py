"""What trained learners share: a network, the inputs it takes, one way to train it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from curate.core.errors import BadArray, BadConfig, IncompatibleStream
from curate.core.torch_threads import one_thread
from eval.engine.augment import KINDS
from eval.engine.deep import Deep, known
from eval.engine.linear import Head, LinearSettings, Net, Rule, fit, on, predict, step
from eval.engine.mlp import Mlp
from eval.learner import Array, Labels, Learner, Task

HEADS = {"linear": LinearSettings.lr, "mlp": 0.1}  # learning rates on features [CLEAR, supplement 6]
OF_IMAGES = 0.01  # and of networks on images [CLEAR, supplement 5]


@dataclass
class NetLearner(Learner):
    """A network trained by SGD: a softmax head on features (CLEAR's linear probe) by default.

    net: "linear"; "mlp" with one layer of `hidden` units (CLEAR: 2,048); or a model of timm, as "resnet18", for streams
    of images, with random weights. lr: None is the net's own, 1 for linear, 0.1 for mlp and 0.01 for the others, as in
    the paper. decay_after: epochs after which lr falls to `decay` of what it is, again and again. precision: "bfloat16"
    rounds the numbers that training multiplies. scale: "rms" divides features by one constant, the root mean squared
    length of the first training data, so that lr = 1 is stable whatever their unit; "none" leaves them as they are.
    augment: what happens to training images, of flip, crop and rotate, joined by "+" (CLEAR: flip+crop), or "none".
    weights: a checkpoint that a network on images starts from, each time it would start from random weights.
    optimiser: "sgd", or "adamw" with decay of all weights. correct_lr: of the one step of SGD that a correction takes
    [OCRR: 0.05]. device: "cpu", "cuda", or "auto".
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
    augment: str = "flip+crop"
    weights: str = ""
    optimiser: str = "sgd"
    correct_lr: float = 0.05
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.lr is None:
            self.lr = HEADS.get(self.net, OF_IMAGES)

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """A new head; nothing is remembered."""
        if self.optimiser not in ("sgd", "adamw"):
            raise BadConfig(f"optimiser is {self.optimiser!r}.", "Expected sgd or adamw.")
        if self.precision not in ("float32", "bfloat16") or self.decay_after < 1:
            raise BadConfig(
                f"precision is {self.precision!r}, decay_after is {self.decay_after}.",
                "Expected float32 or bfloat16, and at least 1.",
            )
        self.kinds = tuple(kind for kind in self.augment.split("+") if kind != "none")
        if unknown := [kind for kind in self.kinds if kind not in KINDS]:
            raise BadConfig(f"augment names {unknown[0]!r}.", f"Expected {', '.join(KINDS)}, joined by +, or none.")
        if self.net not in HEADS:
            known(self.net)
            if len(task.x_shape) != 3 or task.x_shape[-1] != 3:
                raise IncompatibleStream(
                    f"net is {self.net!r}, which sees images; samples here have shape {task.x_shape}.",
                    "Expected uint8 images (H, W, 3).",
                    "Use net=linear or net=mlp on features.",
                )
        self.task, self.rng, self.gradient_steps, self.credit = task, rng, 0, 0.0
        self.place = place(self.device)
        self.length: float | None = None
        self.reset()

    def reset(self) -> None:
        """New random weights."""
        width, classes = int(np.prod(self.task.x_shape)), self.task.n_classes
        self.head: Net
        half = self.precision == "bfloat16"
        if self.net == "mlp":
            self.head = Mlp.new(classes, width, self.hidden, self.rng, self.place, half)
        elif self.net == "linear":
            self.head = Head.new(classes, width, self.rng, self.place, half)
        else:
            self.head = Deep.new(self.net, classes, self.kinds, self.rng, self.place, half, self.weights)

    def inputs(self, x: Array) -> Array:
        """What the network trains on: (N, D) float32, scaled, uint8 images first become 0 … 1; a network on images
        takes them as they are."""
        plain, by = self._plain(x)
        if self.net not in HEADS:
            return plain
        return np.asarray(plain, np.float32) if by == 1 else np.multiply(plain, np.float32(1 / by), dtype=np.float32)

    def _plain(self, x: Array) -> tuple[Array, float]:
        """(N, ...) → (N, D) as they are, and what they are to be divided by; images as they are."""
        if self.net not in HEADS:
            if (images := np.asarray(x)).dtype != np.uint8:
                raise IncompatibleStream(
                    f"net is {self.net!r}; samples have dtype {images.dtype}.", "Expected uint8 images."
                )
            return images, 1.0
        flat = np.asarray(x).reshape(len(x), -1)
        length = self.length if self.scale == "rms" and self.length else 1.0
        return flat, length * (255 if flat.dtype == np.uint8 else 1)

    def measure(self, x: Array) -> None:
        """The first data decide what features are divided by."""
        if self.length is None and self.net in HEADS:
            plain = np.asarray(self.inputs(x), np.float64)
            self.length = float(np.sqrt((plain**2).sum(1).mean())) or 1.0

    def allowed(self) -> int:
        """Updates that the batch at hand pays for; what is left over counts for the next."""
        self.credit += (self.task.updates or 0.0) / self.cost
        whole = int(self.credit + 1e-9)
        self.credit -= whole
        return whole

    def train(self, x: Array, y: Labels, memory: tuple[Array, Labels] | None = None, rule: Rule | None = None) -> int:
        """One training run over (x, y) with a new optimiser; on a stream with a budget, as many updates on all of it as
        that allows. rule: what the method adds to plain SGD. Returns the number of updates."""
        online = self.task.updates is not None
        updates = self.allowed() if online else 0
        if online and not updates:
            return 0
        self.measure(x)
        settings = LinearSettings(
            self.lr or HEADS.get(self.net, OF_IMAGES),
            self.momentum,
            self.weight_decay,
            len(y) if online else self.batch,
            updates if online else self.epochs,
            updates if online else self.decay_after,
            self.decay,
            self.optimiser,
        )
        replay = None if memory is None else (self.inputs(memory[0]), memory[1])
        done = fit(self.head, self.inputs(x), np.asarray(y, np.int64), settings, self.rng, replay, rule)
        self.gradient_steps += done
        return done

    def predict(self, x: Array) -> Labels:
        """Class of the highest score."""
        flat, by = self._plain(x)
        return predict(self.head, flat if self.net not in HEADS else np.asarray(flat, np.float32), by)

    def confidence(self, x: Array) -> npt.NDArray[np.float64] | None:
        """The answer's probability, by softmax."""
        import torch

        with one_thread(), torch.inference_mode():
            scores = self.head.scores(on(self.inputs(x), self.head))
            return torch.softmax(scores.float(), 1).max(1).values.double().cpu().numpy()

    def correct(self, x: Array, y: Labels) -> None:
        """One step of SGD on the sample, without momentum, under what the method adds. Raises BadArray for a class that
        the head does not have."""
        import torch

        if int(np.max(y)) >= self.head.params[-1].shape[0]:
            raise BadArray(
                f"A correction names class {int(np.max(y))}.",
                f"The head was made for {self.head.params[-1].shape[0]} classes.",
                "Declare all classes, or use a memory (substrate) or online-linear(classes=open), which grow.",
            )

        with one_thread(), torch.no_grad():
            data, labels = on(self.inputs(x), self.head), on(np.asarray(y, np.int64), self.head)
            grown = LinearSettings(lr=self.correct_lr, momentum=0.0)
            step(self.head, self.head.view(data), labels, self.correct_lr, grown, self.on_correction())
        self.gradient_steps += 1

    def on_correction(self) -> Rule | None:
        """What the method adds to the step of a correction."""
        return None

    def samples_trained(self, sizes: Sequence[int]) -> float:
        """Every step's data, `epochs` times, as dear as an update is."""
        return self.epochs * self.cost * sum(sizes)

    def operations(self, width: int, classes: int) -> float:
        """Multiplications and additions of one visit: a forward and two backward products; NaN for other networks."""
        if self.net == "linear":
            return 4.0 * width * classes
        return 6.0 * self.hidden * (width + classes) if self.net == "mlp" else float("nan")

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
