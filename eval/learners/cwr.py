"""CWR*: class weights are trained apart and consolidated by how often a class was seen [Lomonaco et al. 2020]."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eval.engine.linear import on
from eval.learner import Array, Labels, Task
from eval.learners.linear import LinearLearner


@dataclass
class Cwr(LinearLearner):
    """Consolidated weights cw, averaged over steps with weight √(past / current) per class (algorithm CWR*).

    Training starts from cw; afterwards each class's weights, less the mean over all weights of the step's classes, are
    merged into cw. With a linear head on fixed features everything below the head is frozen anyway.
    """

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """Nothing consolidated."""
        import torch

        super().begin(task, rng)
        self.past = np.zeros(task.n_classes)
        self.consolidated = torch.zeros_like(self.head.weights)

    def learn(self, x: Array, y: Labels) -> None:
        """Train from the consolidated weights, then consolidate."""
        if self.past.any():
            self.head.weights.copy_(self.consolidated)
        self.train(x, y)
        current = np.bincount(y, minlength=len(self.past)).astype(np.float64)
        seen = np.flatnonzero(current)
        where = on(seen, self.head)
        trained = self.head.weights[where] - self.head.weights[where].mean()
        ratio = np.sqrt(self.past[seen] / current[seen])[:, None]
        past = on(ratio.astype(np.float32), self.head)
        self.consolidated[where] = (self.consolidated[where] * past + trained) / (past + 1)
        self.past += current
        self.head.weights.copy_(self.consolidated)
