"""ACM: the nearest of all samples seen, by cosine; nothing is trained [near-future accuracy, sec. 5]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from curate.core.errors import BadConfig
from curate.core.torch_threads import one_thread
from eval.learner import Array, Labels, Learner, Task
from eval.memory.knn_index import MEASURED, Memory


@dataclass
class Acm(Learner):
    """Votes of the k nearest; ties go to the class of the nearest of them, so that k = 2 answers exactly as k = 1.

    exact_below: samples up to which the search is exact; above, a faiss index whose recall is measured (`recalls`).
    limit_mb: main memory for samples; what is beyond lies in files.
    """

    k: int = 2
    exact_below: int = 1_000_000
    limit_mb: int = 4096

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """An empty memory."""
        if self.k < 1:
            raise BadConfig(f"k is {self.k}.", "Expected a number of neighbours from 1.")
        self.memory = Memory(int(np.prod(task.x_shape)), self.exact_below, self.limit_mb)
        self.labels: list[Labels] = []

    def learn(self, x: Array, y: Labels) -> None:
        """Append."""
        with one_thread():
            self.memory.measure(np.asarray(x)[:MEASURED], self.k)  # before they are in it and find themselves
            self.memory.add(x)
            self.labels.append(np.array(y, np.int64))

    def predict(self, x: Array) -> Labels:
        """Before anything was learned: 0."""
        if not self.memory.n:
            return np.zeros(len(x), np.int64)
        self.labels = [np.concatenate(self.labels)]
        with one_thread():
            _, positions = self.memory.search(np.asarray(x), self.k)
        return voted(self.labels[0][positions])

    def metadata(self) -> dict[str, Any]:
        """For the run's record."""
        return {"recall": [list(pair) for pair in self.memory.recalls]} if self.memory.recalls else {}


def voted(near: Labels) -> Labels:
    """(m, k) labels of neighbours, nearest first → (m,) the most frequent; ties: the one whose nearest is nearest."""
    votes = (near[:, :, None] == near[:, None, :]).sum(2)  # (m, k): how many agree with each
    return np.asarray(near[np.arange(len(near)), votes.argmax(1)], np.int64)
