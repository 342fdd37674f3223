"""Answers that ignore the samples."""

from dataclasses import dataclass

import numpy as np

from driftline.eval.learner import Array, Guide, Labels, Learner, Task


@dataclass
class Majority(Learner):
    """Predicts the most frequent class so far (ties: the lowest label; before any: 0)."""

    blind = True
    guide = Guide("references", "", "n", "what a model reaches that ignores the samples")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        self.counts = np.zeros(task.n_classes, np.int64)  # (C,)

    def predict(self, x: Array) -> Labels | tuple[Labels, Array]:
        """The same label for every sample, and the shares of the classes so far; equal before any."""
        counts = self.counts if self.counts.any() else np.ones(len(self.counts))
        return np.full(len(x), self.counts.argmax(), np.int64), np.tile(counts / counts.sum(), (len(x), 1))

    def learn(self, x: Array, y: Labels) -> None:
        self.counts += np.bincount(y, minlength=len(self.counts))


@dataclass
class Random(Learner):
    """Predicts classes uniformly at random; within a run the same batch always gets the same guesses."""

    blind = True
    guide = Guide("references", "", "one draw", "chance")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        self.n_classes, self.seed = task.n_classes, int(rng.integers(2**31))

    def predict(self, x: Array) -> Labels | tuple[Labels, Array]:
        """Guesses from a new generator with the run's seed, so that predicting changes nothing."""
        guesses = np.random.default_rng(self.seed).integers(self.n_classes, size=len(x), dtype=np.int64)
        return guesses, np.full(len(x), 1 / self.n_classes)

    def learn(self, x: Array, y: Labels) -> None:
        """Ignored."""
