"""Napping: learn the first step, then never again [CLEAR, table 4]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eval.learner import Array, Labels, Task
from eval.training.sgd_learner import NetLearner


@dataclass
class Nap(NetLearner):
    """Trains on the first data it meets and sleeps from then on: what not learning costs."""

    needs_whole_steps = "it learns the first step as a whole"

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """Awake again."""
        super().begin(task, rng)
        self.asleep = False

    def samples_trained(self, sizes: Sequence[int]) -> float:
        """The first step alone."""
        return float(self.epochs * sizes[0])

    def learn(self, x: Array, y: Labels) -> None:
        """Only the first call counts."""
        if not self.asleep:
            self.train(x, y)
            self.asleep = True
