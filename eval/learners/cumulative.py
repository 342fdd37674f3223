"""Cumulative training: all data so far, unlimited memory [CLEAR, table 4]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from driftline.eval.learner import Array, Guide, Labels, Needs, Task
from driftline.eval.training.sgd_learner import NetLearner


@dataclass
class Cumulative(NetLearner):
    """Trains on everything seen so far, after every step."""

    start: Literal["finetune", "scratch"] = "finetune"
    """whether training continues from the current weights, or starts from random ones"""

    needs = Needs(whole_steps="it trains on all data after every step; er-online draws from them")
    guide = Guide("trained heads", "CLEAR, table 4", "E N D C", "all data so far, if memory and time are no limit")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        super().begin(task, rng)
        self.x: list[Array] = []  # of each step, as it came
        self.y: Labels = np.zeros(0, np.int64)

    def samples_trained(self, sizes: Sequence[int]) -> float:
        return self.epochs * float(sum(sum(sizes[: i + 1]) for i in range(len(sizes))))

    def learn(self, x: Array, y: Labels) -> None:
        self.x.append(np.asarray(x))
        self.y = np.concatenate([self.y, y])
        if self.start == "scratch":
            self.reset()
        self.train(self.x, self.y)
