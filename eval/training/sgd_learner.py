"""Base of learners that train a network by SGD: a budget of updates, the network, its inputs, one training loop."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, Field, NonNegativeFloat, PositiveFloat, PositiveInt

from driftline.curate.core.errors import BadArray, BadConfig, Diverged, IncompatibleStream
from driftline.curate.core.executor import one_thread
from driftline.curate.core.late import torch
from driftline.eval.engine import fused
from driftline.eval.engine.deep import KINDS, RANDOM, Deep, check_model
from driftline.eval.engine.heads import Mlp
from driftline.eval.engine.linear import Head, LinearSettings, Net, Rule, fit, net_scores, on, step
from driftline.eval.learner import Array, Labels, Learner, Task


@dataclass
class Budget:
    """Updates that each batch of a stream pays for; what is left is carried over to the next."""

    task: Task
    """what the protocol grants"""
    credit: float = 0.0
    """updates of plain SGD on a whole batch that are left"""

    def take(self, cost: float = 1.0, batch_cost: float = 0.0) -> int | None:
        """Updates that are paid for now; None without a budget. Call it once for each batch of the stream.

        cost: of one update, as `Learner.cost`. batch_cost: of a batch beside its updates; it is due if there are any.
        """
        if self.task.updates is None:
            return None
        self.credit += self.task.updates
        whole = max(0, int((self.credit - batch_cost) / cost + 1e-9))
        self.credit -= whole * cost + batch_cost if whole else 0.0
        return whole

    def check_anchor(self, cost: float = 1.0, batch_cost: float = 0.0) -> None:
        """Raise IncompatibleStream if a batch pays for one update only: a pull towards the weights from before the
        batch is zero there, and the method would be plain finetuning. cost, batch_cost: as of `take`."""
        least = batch_cost + 2 * cost
        if self.task.updates is not None and self.task.updates < least:
            raise IncompatibleStream(
                f"It pulls towards the weights from before a batch, which the first update of a batch cannot feel; "
                f"a batch pays for {self.task.updates:g} updates.",
                f"Expected at least {least:.3g}, of which it makes two.",
                "Set near-future.updates, or take finetune, which it would be.",
            )


def batches_of(
    n: int, size: int, epochs: int, rng: np.random.Generator, updates: int | None = None
) -> Iterator[npt.NDArray[np.int64]]:
    """Positions of samples for one update after the other: `epochs` passes over n samples, in a new order each, in
    batches of `size`; or, if there is a budget, as many batches as `updates`.

    >>> [len(rows) for rows in batches_of(5, 2, 1, np.random.default_rng(0))]
    [2, 2, 1]
    >>> [len(rows) for rows in batches_of(5, 2, 1, np.random.default_rng(0), updates=4)]
    [2, 2, 1, 2]
    """
    left = epochs * -(-n // size) if updates is None else updates
    while left > 0 and n:
        order = rng.permutation(n)
        for low in range(0, n, size)[:left]:
            yield order[low : low + size]
        left -= -(-n // size)


HEADS = {"linear": LinearSettings.lr, "mlp": 0.1}  # learning rates on features [CLEAR, supplement 6]
RATES = (10.0, 3.0, 30.0, 1.0, 100.0, 0.3, 0.1, 0.03)  # of "auto" on scaled features; among equals the first
RATES_OF_IMAGES = (0.005, 0.05, 0.0005)  # [near-future accuracy, supplement B.2]
OF_IMAGES = 0.01  # learning rate of networks on images [CLEAR, supplement 5]
BLOCK = 1024  # samples that are measured in float64 at once


def _augmentations(text: str) -> str:
    if set(text.split("+")) - {*KINDS, "none"}:
        raise ValueError(f"{', '.join(KINDS)}, joined by +, or none")
    return text


def _device(name: str) -> str:
    if re.fullmatch(r"auto|cpu|cuda(:[0-9]+)?", name) is None:
        raise ValueError("cpu, cuda or auto")
    return name


Device = Annotated[str, AfterValidator(_device)]


@dataclass
class NetworkLearner(Learner):
    """A network, its inputs and scores: by default a softmax head on features (CLEAR's linear probe)."""

    lr: PositiveFloat | Literal["auto"] | None = None
    """learning rate; "auto": chosen by the protocol on samples that are not scored; None: "auto" where
    the protocol says so (near-future), else 1 for linear, 0.1 for mlp and 0.01 for the others, as in CLEAR"""
    momentum: Annotated[float, Field(ge=0, lt=1)] = LinearSettings.momentum
    """momentum of SGD"""
    weight_decay: NonNegativeFloat = LinearSettings.weight_decay
    """weight decay"""
    batch: PositiveInt = LinearSettings.batch
    """samples per update"""
    epochs: PositiveInt = LinearSettings.epochs
    """passes over the data of a step"""
    scale: Literal["rms", "none"] = "rms"
    """`rms` divides features by one constant, the root mean squared length of the first training data, so that lr = 1
    is stable in every unit; `none` leaves them unchanged"""
    net: str = "linear"
    """linear; mlp with one hidden layer; or a timm model such as resnet18, with random weights, for images"""
    hidden: PositiveInt = 2048
    """units of the hidden layer of mlp (CLEAR: 2,048)"""
    precision: Literal["float32", "bfloat16"] = "float32"
    """`bfloat16` rounds the factors of products in training"""
    augment: Annotated[str, AfterValidator(_augmentations)] = "flip+crop"
    """augmentation of training images: flip, crop and rotate, joined by + (CLEAR: flip+crop), or none"""
    weights: str = ""
    """start of a network on images, instead of random weights: a checkpoint, a folder of `models train`, or a tag of
    timm, as in net=resnet50,weights=tv_in1k (ImageNet) or weights=fb_swsl_ig1b_ft_in1k (Instagram-1B); none: random
    ones, where a preset names others"""
    device: Device = "cpu"
    """cpu, cuda or auto"""

    reaches = MappingProxyType({"weights": "a file"})
    cosine: ClassVar[bool] = False
    """the classifier compares angles"""

    @property
    def rate(self) -> float:
        """The learning rate as a number. Raises BadConfig if it has not been chosen."""
        if self.lr == "auto":
            raise BadConfig(f"lr of {type(self).__name__} is 'auto'.", "Only evaluate() and driftline eval choose it.")
        return HEADS.get(self.net, OF_IMAGES) if self.lr is None else self.lr

    def settings(self) -> dict[str, Any]:
        """The dataclass fields, with a number for the learning rate unless it is "auto"."""
        return super().settings() | {"lr": self.lr if self.lr == "auto" else self.rate}

    def candidates(self) -> dict[str, list[Any]]:
        """Learning rates, if `lr` is "auto"."""
        return {"lr": list(RATES if self.net in HEADS else RATES_OF_IMAGES)} if self.lr == "auto" else {}

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """A new head. Raises BadConfig for an unknown network, IncompatibleStream for one that takes other samples."""
        self.kinds = tuple(kind for kind in self.augment.split("+") if kind != "none")
        if self.net in HEADS and self.weights not in RANDOM:
            problem = f"weights is {self.weights!r}, and net={self.net} starts from random weights."
            raise BadConfig(problem, "Expected none.", "Use them with a network on images, such as net=resnet18.")
        if self.net not in HEADS:
            check_model(self.net, task.x_shape)
        self.task, self.rng, self.gradient_steps, self.extra = task, rng, 0, 0.0
        self.budget = Budget(task)
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
            place, weights = self.place, self.weights
            self.head = Deep.new(self.net, classes, self.kinds, self.rng, place, half, weights, self.cosine)

    def inputs(self, x: Array) -> Array:
        """Inputs of the network: (N, D) float32, scaled, uint8 images as 0 … 1; for a network on images, the images
        unchanged."""
        plain, divisor = self._flattened(x)
        if self.net not in HEADS:
            return plain
        if divisor == 1:
            return np.asarray(plain, np.float32)
        return np.multiply(plain, np.float32(1 / divisor), out=fused.aligned(plain.shape), dtype=np.float32)

    def joined(self, parts: Sequence[Array]) -> Array:
        """`inputs` of several arrays, one after the other, without a second array of all samples."""
        if len(parts) == 1:
            return self.inputs(parts[0])
        if self.net not in HEADS:
            return np.concatenate([self.inputs(part) for part in parts])
        edges = np.cumsum([0, *map(len, parts)]).tolist()
        out = fused.aligned((edges[-1], int(np.prod(self.task.x_shape))))
        for low, high, part in zip(edges, edges[1:], parts, strict=False):
            out[low:high] = self.inputs(part)
        return out

    def _flattened(self, x: Array) -> tuple[Array, float]:
        """(N, ...) → (N, D) unscaled, and their divisor; images unchanged."""
        if self.net not in HEADS:
            if (images := np.asarray(x)).dtype != np.uint8:
                problem = f"net is {self.net!r}; samples have dtype {images.dtype}."
                raise IncompatibleStream(problem, "Expected uint8 images.")
            return images, 1.0
        flat = np.asarray(x).reshape(len(x), -1)
        length = self.length if self.scale == "rms" and self.length else 1.0
        return flat, length * (255 if flat.dtype == np.uint8 else 1)

    def measure(self, *parts: Array) -> None:
        """Set the scale of features from the first data; some samples at a time are in float64."""
        if self.length is None and self.net in HEADS:
            blocks = (part[low : low + BLOCK] for part in parts for low in range(0, max(1, len(part)), BLOCK))
            squares = [(np.asarray(self.inputs(block), np.float64) ** 2).sum(1) for block in blocks]
            self.length = float(np.sqrt(np.concatenate(squares).mean())) or 1.0

    def scores(self, x: Array) -> Array:
        flat, divisor = self._flattened(x)
        return net_scores(self.head, flat if self.net not in HEADS else np.asarray(flat, np.float32), divisor)

    def samples_trained(self, sizes: Sequence[int]) -> float:
        """Every step's data, `epochs` times, weighted by the cost of an update and of a batch."""
        return (self.epochs * self.cost + self.batch_cost) * sum(sizes)


@dataclass
class NetLearner(NetworkLearner):
    """A network that is trained on the data of a step, for some epochs."""

    decay_after: PositiveInt = LinearSettings.decay_after
    """epochs after which the learning rate is multiplied by `decay`, repeatedly"""
    decay: NonNegativeFloat = LinearSettings.decay
    """factor of the learning rate"""
    optimiser: Literal["sgd", "adamw"] = "sgd"
    """`adamw` decays all weights"""
    correct_lr: PositiveFloat = 0.05
    """learning rate of the one step of SGD on a correction [OCRR: 0.05]"""

    def learn(self, x: Array, y: Labels) -> None:
        self.train(x, y)

    def train(
        self, x: Array | list[Array], y: Labels, memory: tuple[Array, Labels] | None = None, rule: Rule | None = None,
        groups: Sequence[int] = (),
    ) -> int:  # fmt: skip
        """One training run over (x, y) with a new optimiser; under a budget, as many updates on all of (x, y) as it
        allows. x: all samples, or parts of them in the order of y. memory, groups: as in `engine.linear.fit`. rule:
        what the method adds to plain SGD. Returns the number of updates."""
        updates = self.budget.take(self.cost, self.batch_cost)
        if updates == 0:
            return 0
        parts = x if isinstance(x, list) else [x]
        self.measure(*parts)
        length = (self.batch if updates is None else len(y), updates or self.epochs, updates or self.decay_after)
        of_steps = (self.rate, self.momentum, self.weight_decay)
        settings = LinearSettings(*of_steps, *length, decay=self.decay, optimiser=self.optimiser)
        replay = None if memory is None else (self.inputs(memory[0]), memory[1])
        labels = np.asarray(y, np.int64)
        done = fit(self.head, self.joined(parts), labels, settings, self.rng, replay, rule, groups)
        self.gradient_steps += done
        return done

    def correct(self, x: Array, y: Labels) -> None:
        """One step of SGD on the sample, without momentum, with the method's rule. Raises BadArray for a class that the
        head does not have, Diverged if the weights are not finite."""
        self.check_declared(y)
        with one_thread(), torch.no_grad():
            data, labels = on(self.inputs(x), self.head), on(np.asarray(y, np.int64), self.head)
            plain = LinearSettings(lr=self.correct_lr, momentum=0.0)
            step(self.head, self.head.view(data), labels, self.correct_lr, plain, self.on_correction())
            if not bool(torch.isfinite(self.head.params[-1]).all()):
                raise Diverged("The head's weights are not finite.", "", f"Lower correct_lr (it is {self.correct_lr}).")
        self.gradient_steps += 1

    def unused(self, task: Task) -> dict[str, str]:
        """Epochs and batches under a budget of updates, the rate of corrections without any."""
        return task.budgeted("batch", "epochs", "decay_after", "decay") | task.of_corrections("correct_lr")

    def check_declared(self, y: Labels) -> None:
        """Raise BadArray for a class that the head does not have."""
        if int(np.max(y)) >= self.head.params[-1].shape[0]:
            problem = f"A correction names class {int(np.max(y))}."
            way_out = "Declare all classes, or use substrate or online-linear(classes=open), which accept new classes."
            raise BadArray(problem, f"The head was made for {self.head.params[-1].shape[0]} classes.", way_out)

    def on_correction(self) -> Rule | None:
        """The method's rule for a correction."""
        return None


def place(device: str) -> str:
    """ "auto" → "cuda" if there is a GPU, else "cpu". Raises BadConfig for a GPU that is not there."""
    if device == "cpu":
        return device
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise BadConfig(f"device is {device!r}.", "No CUDA device is visible.", "Use cpu or auto.")
    return device
