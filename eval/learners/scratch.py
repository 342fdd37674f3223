"""From scratch: each step trains random weights on its own data only [CLEAR, table 4: one bucket, α = 1]."""

from __future__ import annotations

from dataclasses import dataclass

from driftline.eval.learner import Array, Guide, Labels, Needs
from driftline.eval.training.sgd_learner import NetLearner


@dataclass
class Scratch(NetLearner):
    """Trains random weights on each step's data only."""

    needs = Needs(whole_steps="it starts from random weights in every step")
    guide = Guide("trained heads", "CLEAR, table 4", "E n D C", "what one step alone teaches")

    def learn(self, x: Array, y: Labels) -> None:
        self.reset()
        self.train(x, y)
