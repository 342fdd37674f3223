"""Napping: trains on the first step only [CLEAR, table 4]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from driftline.eval.learner import Array, Guide, Labels, Needs, Task
from driftline.eval.training.sgd_learner import NetLearner


@dataclass
class Nap(NetLearner):
    """Trains on the first step only: the cost of not learning later."""

    needs = Needs(first_step="it learns nothing else")
    guide = Guide("trained heads", "CLEAR, table 4", "E n D C, first step only",
                  "how fast a model ages that is never trained again")  # fmt: skip

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        super().begin(task, rng)
        self.trained = False

    def samples_trained(self, sizes: Sequence[int]) -> float:
        return float(self.epochs * sizes[0])

    def learn(self, x: Array, y: Labels) -> None:
        """Train at the first call; ignore later ones."""
        if not self.trained:
            self.train(x, y)
            self.trained = True

    def correct(self, x: Array, y: Labels) -> None:
        """Ignored."""

    def unused(self, task: Task) -> dict[str, str]:
        """The rate of corrections."""
        return super().unused(task) | {"correct_lr": "it ignores corrections"}
