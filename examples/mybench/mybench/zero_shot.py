"""Two adapters of zero-shot classification, derived from driftline's own learner."""

from dataclasses import dataclass

import numpy as np
from pydantic import PositiveFloat, PositiveInt

from driftline.eval.learners.trained_heads import NEVER, ZeroShot
from driftline.ext import Array, Labels, Task, unit


@dataclass
class Calibrated(ZeroShot):
    """Zero-shot probabilities divided by their mean over the training samples so far [Saerens et al. 2002, eq. 2.4]."""

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        super().begin(task, rng)
        self.total, self.seen = np.ones(task.n_classes) / task.n_classes, 1  # one sample's worth of equal probabilities

    def learn(self, x: Array, y: Labels) -> None:
        scores = super().scores(x)
        p = np.exp(scores - scores.max(1, keepdims=True))
        self.total += (p / p.sum(1, keepdims=True)).sum(0)
        self.seen += len(y)

    def scores(self, x: Array) -> Array:
        return super().scores(x) - np.log(self.total / self.seen)


@dataclass
class TipAdapter(ZeroShot):
    """Zero-shot scores plus votes of stored samples: α exp(-β (1 - cos)) [Zhang et al. 2022, eq. 3-5]."""

    shots: PositiveInt = 16
    """newest samples of each class that are stored"""
    alpha: PositiveFloat = 1.0
    """α, weight of the votes"""
    beta: PositiveFloat = 5.5
    """β, how fast a vote falls with the distance"""

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        super().begin(task, rng)
        self.keys, self.values = np.zeros((0, self.texts.shape[1]), np.float32), np.zeros(0, np.int64)

    def learn(self, x: Array, y: Labels) -> None:
        keys, values = np.concatenate([self.keys, unit(x)]), np.concatenate([self.values, y])
        newest = [np.flatnonzero(values == label)[-self.shots :] for label in np.unique(values)]
        kept = np.sort(np.concatenate(newest))
        self.keys, self.values = keys[kept], values[kept]

    def scores(self, x: Array) -> Array:
        scores = super().scores(x)
        votes = np.exp(-self.beta * (1 - unit(x) @ self.keys.T)) @ np.eye(self.task.n_classes)[self.values]
        seen = np.isin(np.arange(self.task.n_classes), self.values)
        scores[:, self.silent & seen] -= NEVER  # the stored samples alone speak for a class without texts
        return scores + self.alpha * votes
