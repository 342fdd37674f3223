"""Linear heads that are fitted to seed data, then corrected sample by sample or frozen [OCRR]."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from driftline.curate.core.executor import one_thread
from driftline.eval.engine.linear import grown
from driftline.eval.learner import Array, Guide, Labels, Needs, Task
from driftline.eval.memory.knn_index import Memory, TrackedQueries
from driftline.eval.training.sgd_learner import NetLearner


@dataclass
class OnlineLinear(NetLearner):
    """A softmax head fitted by AdamW, then one step of SGD for every correction.

    Defaults as in OCRR: learning rate 0.01, weight decay 1e-4, 30 epochs; corrections with 0.05.
    """

    optimiser: Literal["sgd", "adamw"] = "adamw"
    lr: PositiveFloat | Literal["auto"] | None = 0.01
    weight_decay: NonNegativeFloat = 1e-4
    epochs: PositiveInt = 30
    decay_after: PositiveInt = 30
    scale: Literal["rms", "none"] = "none"
    classes: Literal["closed", "open"] = "closed"
    """a correction to an undeclared class: `open` adds the class, with weights of zero; `closed` refuses it"""

    guide = Guide("online", "OCRR", "E n D C", "one step of SGD for each correction")

    def correct(self, x: Array, y: Labels) -> None:
        missing = int(np.max(y)) + 1 - len(self.head.params[-1])
        if self.classes == "open" and missing > 0:
            self.head = grown(self.head, missing)
        super().correct(x, y)


@dataclass
class StaticLinear(OnlineLinear):
    """The same linear head, frozen after the first step or the seed data: ignores later steps and corrections."""

    needs = Needs(first_step="its head is fitted to it, and then frozen")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        super().begin(task, rng)
        self.frozen = False

    def learn(self, x: Array, y: Labels) -> None:
        """Fit the head at the first call; ignore later ones."""
        if not self.frozen:
            super().learn(x, y)
        self.frozen = True

    def samples_trained(self, sizes: Sequence[int]) -> float:
        return super().samples_trained(sizes[:1])

    guide = Guide("online", "OCRR", "E n D C", "what corrections add to a head")

    def unused(self, task: Task) -> dict[str, str]:
        """What corrections would use."""
        return super().unused(task) | dict.fromkeys(
            ("correct_lr", "classes"), "its head is frozen when corrections come"
        )

    def correct(self, x: Array, y: Labels) -> None:
        """Ignored."""


@dataclass
class KnnLm(StaticLinear):
    """Mean of a frozen linear head and the vote of the nearest samples, by a softmax of their cosines.

    [Khandelwal et al. 2020; OCRR: k 5, temperature 0.1]
    """

    k: PositiveInt = 5
    """neighbours"""
    temperature: PositiveFloat = 0.1
    """temperature of the softmax of cosines"""
    share: Annotated[float, Field(ge=0, le=1)] = 0.5
    """weight of the neighbours; the head has the rest"""

    guide = Guide("nearest neighbours", "Khandelwal et al. 2020", "E n D C + n N D",
                  "a frozen head and neighbours together")  # fmt: skip

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        super().begin(task, rng)
        self.memory = Memory(int(np.prod(task.x_shape)))
        self.tracked: TrackedQueries | None = None

    def learn(self, x: Array, y: Labels) -> None:
        super().learn(x, y)
        self.correct(x, y)

    def correct(self, x: Array, y: Labels) -> None:
        """Append the sample to the memory; the head stays. Raises BadArray for a class that the head does not have."""
        self.check_declared(y)
        with one_thread():
            self.memory.learn(x, y, self.k)

    def prepare(self, x: Sequence[Array]) -> None:
        """Find their nearest samples once; later only new samples are compared with them."""
        with one_thread():
            self.tracked = TrackedQueries(self.memory, x, self.k)

    def predict(self, x: Array) -> Labels | tuple[Labels, Array]:
        """The class of the highest mean probability."""
        if not self.memory.n:
            return super().predict(x)
        mixed = self.mixed(x)
        return np.asarray(mixed.argmax(1), np.int64), mixed

    def mixed(self, x: Array) -> npt.NDArray[np.float64]:
        """(m, C) probabilities."""
        import torch

        neighbours = None if self.tracked is None else self.tracked.nearest(x)
        with one_thread(), torch.inference_mode():
            cosines, positions = self.memory.search(np.asarray(x), self.k) if neighbours is None else neighbours
            head = torch.softmax(self.head.scores(torch.from_numpy(np.array(self.inputs(x)))), 1).numpy()
        near = np.exp((cosines - cosines[:, :1]) / self.temperature)
        near /= near.sum(1, keepdims=True)
        mixed = (1 - self.share) * head
        np.add.at(mixed, (np.arange(len(x))[:, None], self.memory.labels[positions]), self.share * near)
        return np.asarray(mixed)

    def stored_bytes(self) -> int:
        """Vectors, labels and the head."""
        return self.memory.nbytes + sum(int(p.nbytes) for p in self.head.params)
