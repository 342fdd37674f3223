"""Nearest class mean, kept as running sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eval.learner import Array, Labels, Learner, Task


@dataclass
class NearestMean(Learner):
    """Predicts the class whose running mean is nearest (Euclidean).

    Cost: O(D) a sample to learn, O(C D) to predict; memory C × D float64.

    >>> learner = NearestMean()
    >>> learner.begin(Task(2, (1,)), np.random.default_rng(0))
    >>> learner.learn(np.array([[0.0], [4.0]]), np.array([0, 1]))
    >>> learner.predict(np.array([[1.0], [3.0]])).tolist()
    [0, 1]
    """

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """Start with sums of zero."""
        self.sums = np.zeros((task.n_classes, int(np.prod(task.x_shape))))  # (C, D)
        self.counts = np.zeros(task.n_classes)  # (C,)

    def learn(self, x: Array, y: Labels) -> None:
        """Add to the sums."""
        np.add.at(self.sums, y, np.asarray(x, np.float64).reshape(len(x), -1))
        np.add.at(self.counts, y, 1)

    def predict(self, x: Array) -> Labels:
        """Nearest mean of the classes seen so far; 0 before any."""
        means = self.sums / np.maximum(self.counts, 1)[:, None]  # (C, D)
        flat = np.asarray(x, np.float64).reshape(len(x), -1)
        scores = flat @ means.T - (means**2).sum(-1) / 2  # (N, C), highest = nearest
        scores[:, self.counts == 0] = -np.inf
        return np.asarray(scores.argmax(1), np.int64)
