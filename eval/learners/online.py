"""Heads and networks that learn from a stream, batch after batch; what they have in common is `OnlineLearner`."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import PositiveFloat, PositiveInt

from driftline.eval.engine.scores import NO_ANSWER
from driftline.eval.learner import Array, Guide, Labels, Learner, Task
from driftline.eval.memory.knn_index import unit
from driftline.eval.memory.samplers import SamplerName
from driftline.eval.training.online_learner import OnlineLearner


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
