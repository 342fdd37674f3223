"""Cumulative training: all data so far, unlimited memory [CLEAR, table 4]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eval.learner import Array, Labels, Task
from eval.training.sgd_learner import NetLearner


@dataclass
class Cumulative(NetLearner):
    """Trains on everything seen so far. start: "finetune" continues from the weights at hand, "scratch" begins anew."""

    needs_whole_steps = "it trains on all data after every step; er-online draws from them"

    start: str = "finetune"

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """An empty memory."""
        super().begin(task, rng)
        self.x: Array = np.zeros((0, *task.x_shape), np.float32)
        self.y: Labels = np.zeros(0, np.int64)

    def samples_trained(self, sizes: Sequence[int]) -> float:
        """Each step all data so far."""
        return self.epochs * float(sum(sum(sizes[: i + 1]) for i in range(len(sizes))))

    def learn(self, x: Array, y: Labels) -> None:
        """Store, then train on all that is stored."""
        self.x = np.concatenate([self.x.astype(x.dtype), x])
        self.y = np.concatenate([self.y, y])
        if self.start == "scratch":
            self.reset()
        self.train(self.x, self.y)
