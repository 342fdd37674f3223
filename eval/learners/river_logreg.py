"""River's logistic regression, one against the rest, one sample at a time [OCRR]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from eval.learner import Array, Labels, Learner, Task
from eval.memory.knn_index import unit


@dataclass
class RiverLogreg(Learner):
    """One pass over `seed_rows` of the seed data, then every correction; SGD at `lr` (needs the extra `river`)."""

    lr: float = 0.01
    seed_rows: int = 3000

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """A new classifier."""
        from river.linear_model import LogisticRegression
        from river.multiclass import OneVsRestClassifier
        from river.optim import SGD

        self.model = OneVsRestClassifier(LogisticRegression(SGD(self.lr)))
        self.rng = rng

    def learn(self, x: Array, y: Labels) -> None:
        """Some of the rows, in random order."""
        rows = self.rng.choice(len(y), min(len(y), self.seed_rows), replace=False)
        for row, label in zip(unit(x[rows]).tolist(), y[rows].tolist(), strict=True):
            self.model.learn_one(dict(enumerate(row)), label)  # type: ignore[no-untyped-call]

    def predict(self, x: Array) -> Labels:
        """River's answers, from its own weights in one product; before it has any: 0."""
        if not self.model.classifiers:
            return np.zeros(len(x), np.int64)
        return np.array(list(self.model.classifiers), np.int64)[self._scores(x).argmax(1)]

    def confidence(self, x: Array) -> npt.NDArray[np.float64] | None:
        """The answer's probability among those of all its classifiers, brought to a sum of one."""
        if not self.model.classifiers:
            return np.zeros(len(x))
        share = 1 / (1 + np.exp(-self._scores(x)))
        return np.asarray(share.max(1) / share.sum(1), np.float64)

    def _scores(self, x: Array) -> npt.NDArray[np.float64]:
        rows = unit(x).astype(np.float64)
        names = list(self.model.classifiers)
        scores = np.empty((len(rows), len(names)))
        for j, name in enumerate(names):
            one: Any = self.model.classifiers[name]
            weights = np.zeros(rows.shape[1])
            for i, w in one.weights.items():
                weights[i] = w
            scores[:, j] = rows @ weights + one.intercept
        return scores

    def stored_bytes(self) -> int:
        """Eight bytes a weight."""
        heads: list[Any] = list(self.model.classifiers.values())
        return sum(8 * (len(one.weights) + 1) for one in heads)
