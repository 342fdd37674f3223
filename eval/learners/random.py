"""Uniform guesses: chance level."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eval.learner import Array, Labels, Learner, Task


@dataclass
class Random(Learner):
    """Predicts uniformly random classes; the same batch always gets the same guesses within a run."""

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """Draw the run's key."""
        self.n_classes, self.key = task.n_classes, int(rng.integers(2**31))

    def predict(self, x: Array) -> Labels:
        """Guesses from a generator that is made anew, so that predicting changes nothing."""
        return np.random.default_rng(self.key).integers(self.n_classes, size=len(x), dtype=np.int64)

    def learn(self, x: Array, y: Labels) -> None:
        """Nothing is learned."""
