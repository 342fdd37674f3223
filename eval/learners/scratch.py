"""From scratch: each step starts from new weights and sees its own data only [CLEAR, table 4: one bucket, α = 1]."""

from __future__ import annotations

from dataclasses import dataclass

from eval.learner import Array, Labels
from eval.training.sgd_learner import NetLearner


@dataclass
class Scratch(NetLearner):
    """Trains new weights on each step's data alone."""

    needs_whole_steps = "it begins anew with every step"

    def learn(self, x: Array, y: Labels) -> None:
        """New weights, then training."""
        self.reset()
        self.train(x, y)
