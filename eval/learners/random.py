"""Uniform guesses: chance level."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from driftline.eval.learner import Array, Guide, Labels, Learner, Task


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
