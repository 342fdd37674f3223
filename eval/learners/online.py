"""Heads and networks that learn from a stream or by corrections, batch after batch or sample after sample."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from driftline.curate.core.executor import one_thread
from driftline.eval.engine.linear import grown
from driftline.eval.engine.scores import NO_ANSWER
from driftline.eval.learner import Array, Guide, Labels, Learner, Needs, Task
from driftline.eval.memory.knn_index import Memory, TrackedQueries, unit
from driftline.eval.memory.samplers import SamplerName
from driftline.eval.training.online_learner import OnlineLearner
from driftline.eval.training.sgd_learner import NetLearner


@dataclass
class ErOnline(OnlineLearner):
    """Cross-entropy on past samples; on images trains the whole network; on features it is FC-Only [sec. 5, ER]."""

    guide = Guide("online", "near-future accuracy, sec. 5", "n D C", "replay on a stream, with a network")


@dataclass
class FcOnly(OnlineLearner):
    """Trains the classifier only, on samples drawn uniformly [near-future accuracy, sec. 5, FC-Only]."""

    head_only = True
    guide = Guide("online", "near-future accuracy, sec. 5", "n D C", "the base row on fast streams")


@dataclass
class Ace(OnlineLearner):
    """The loss of new samples covers the classes of the newest batch only; that of older samples covers all classes."""

    guide = Guide("online", "Caccia et al. 2022", "n D C", "new classes displace old ones; this is ER-ACE")

    def masked(self, incoming: Any, new: Labels) -> Any:
        """For new samples every class that is not in the newest batch."""
        outside = np.ones(self.task.n_classes, bool)
        outside[new] = False
        return incoming[:, None] & outside[None]


@dataclass
class CosineFc(OnlineLearner):
    """Scores σ · cos(x, w), σ learned; on images trains the whole network [sec. 4.1, CosineFC]."""

    cosine = True
    guide = Guide("online", "Hou et al. 2019", "n D C", "frequent classes dominate")

    def unused(self, task: Task) -> dict[str, str]:
        """What angles and a single layer have no use for."""
        plain = {"momentum": "on vectors it takes plain steps"} if self.net == "linear" else {}
        scale = {"scale": "an angle does not depend on the length of a sample"}
        return super().unused(task) | plain | scale | {"hidden": "it has no hidden layer"}


@dataclass
class Overadapt(OnlineLearner):
    """Trains the last layer on the newest samples only [near-future accuracy, sec. 3]."""

    sampler: SamplerName = "fifo"
    head_only = True
    guide = Guide("online", "near-future accuracy", "n D C", "to show that online accuracy misleads")

    def unused(self, task: Task) -> dict[str, str]:
        """It has no memory to choose from."""
        why = "it trains on the newest samples; fc-only has other samplers"
        return super().unused(task) | dict.fromkeys(("sampler", "memory", "alpha"), why)


@dataclass
class RiverLogreg(Learner):
    """One pass over some of the seed data, then every correction, by SGD (extra `river`)."""

    lr: PositiveFloat = 0.01
    """learning rate"""
    seed_rows: PositiveInt = 3000
    """samples of the seed data, at most"""

    guide = Guide("online", "River; OCRR", "n D C", "a second implementation of an online head")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        from river.linear_model import LogisticRegression
        from river.multiclass import OneVsRestClassifier
        from river.optim import SGD

        self.model = OneVsRestClassifier(LogisticRegression(SGD(self.lr)))
        self.task, self.rng, self.gradient_steps = task, rng, 0

    def __getstate__(self) -> dict[str, Any]:
        """For checkpoints: weights, intercept and number of updates of each class's classifier, as plain data."""
        classifiers: dict[Any, Any] = self.model.classifiers
        heads = {
            label: (dict(head.weights.items()), head.intercept, head.optimizer.n_iterations)
            for label, head in classifiers.items()
        }
        return vars(self) | {"model": heads}

    def __setstate__(self, state: dict[str, Any]) -> None:
        heads = state.pop("model")
        self.lr, self.rng = state["lr"], state["rng"]
        self.begin(state["task"], self.rng)
        vars(self).update(state)
        for label, (weights, intercept, updates) in heads.items():
            head: Any = self.model.classifier.clone()
            for i, weight in weights.items():
                head._weights[i] = weight
            head.intercept, head.optimizer.n_iterations = intercept, updates
            self.model.classifiers[label] = head

    def learn(self, x: Array, y: Labels) -> None:
        rows = self.rng.choice(len(y), min(len(y), self.seed_rows), replace=False)
        for row, label in zip(unit(x[rows]).tolist(), y[rows].tolist(), strict=True):
            self.model.learn_one(dict(enumerate(row)), label)  # type: ignore[no-untyped-call]
        self.gradient_steps += 1  # one pass over the batch

    def predict(self, x: Array) -> Labels | tuple[Labels, Array]:
        """The class of the highest score, and its share of the probabilities, one classifier a class; before it has
        learned, no answer."""
        if not self.model.classifiers:
            return np.full(len(x), NO_ANSWER), np.zeros(len(x))
        scores = self._scores(x)
        share = 1 / (1 + np.exp(-scores))
        answers = np.array(list(self.model.classifiers), np.int64)[scores.argmax(1)]
        return answers, np.asarray(share.max(1) / share.sum(1), np.float64)

    def _scores(self, x: Array) -> npt.NDArray[np.float64]:
        rows = unit(x).astype(np.float64)
        names = list(self.model.classifiers)
        scores = np.empty((len(rows), len(names)))
        for j, name in enumerate(names):
            classifier: Any = self.model.classifiers[name]
            weights = np.zeros(rows.shape[1])
            for i, w in classifier.weights.items():
                weights[i] = w
            scores[:, j] = rows @ weights + classifier.intercept
        return scores

    def stored_bytes(self) -> int:
        """Eight bytes per weight."""
        heads: list[Any] = list(self.model.classifiers.values())
        return sum(8 * (len(head.weights) + 1) for head in heads)


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
