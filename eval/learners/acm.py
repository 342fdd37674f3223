"""ACM: nearest neighbours among all samples seen, by cosine; nothing is trained [near-future accuracy, sec. 5]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import NonNegativeInt, PositiveInt

from curate.core.torch_threads import one_thread
from eval.learner import Array, Labels, Learner, Task
from eval.memory.knn_index import MEASURED, Memory


@dataclass
class Acm(Learner):
    """Votes of the k nearest samples; ties go to the class of the nearest, so that k = 2 answers exactly as k = 1."""

    k: PositiveInt = 2
    """neighbours"""
    exact_below: NonNegativeInt = 1_000_000
    """samples up to which the search is exact; above, a faiss index is used and its recall is measured"""
    limit_mb: NonNegativeInt = 4096
    """main memory for samples; the rest is kept in files"""

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """Start with an empty memory."""
        self.memory = Memory(int(np.prod(task.x_shape)), self.exact_below, self.limit_mb)
        self.labels: list[Labels] = []

    def learn(self, x: Array, y: Labels) -> None:
        """Append."""
        with one_thread():
            self.memory.measure(np.asarray(x)[:MEASURED], self.k)  # before they are added: they would find themselves
            self.memory.add(x)
            self.labels.append(np.array(y, np.int64))

    def predict(self, x: Array) -> Labels:
        """The vote; 0 before anything was learned."""
        if not self.memory.n:
            return np.zeros(len(x), np.int64)
        return voted(self._near(x))

    def confidence(self, x: Array) -> npt.NDArray[np.float64] | None:
        """Share of the neighbours that have the answer's label."""
        return self.predict_with_confidence(x)[1]

    def predict_with_confidence(self, x: Array) -> tuple[Labels, npt.NDArray[np.float64] | None]:
        """Both from one search."""
        if not self.memory.n:
            return np.zeros(len(x), np.int64), np.zeros(len(x))
        near = self._near(x)
        answers = voted(near)
        return answers, np.asarray((near == answers[:, None]).mean(1), np.float64)

    def _near(self, x: Array) -> Labels:
        """(m, k) labels of the nearest, nearest first."""
        self.labels = [np.concatenate(self.labels)]
        with one_thread():
            _, positions = self.memory.search(np.asarray(x), self.k)
        return self.labels[0][positions]

    def metadata(self) -> dict[str, Any]:
        """Recall of the index at several sizes, if one is used."""
        return {"recall": [list(pair) for pair in self.memory.recalls]} if self.memory.recalls else {}


def voted(near: Labels) -> Labels:
    """(m, k) labels of neighbours, nearest first → (m,) the most frequent; ties: the class of the nearest neighbour."""
    votes = (near[:, :, None] == near[:, None, :]).sum(2)  # (m, k): how many agree with each
    return np.asarray(near[np.arange(len(near)), votes.argmax(1)], np.int64)
