from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from driftline.ext import Array, Labels, Learner, Task


@dataclass
class DecayedMean(Learner):
    """The nearest class mean; older samples count less."""

    decay: Annotated[float, Field(gt=0, le=1)] = 0.99
    """weight of a class mean after each new sample of the class"""

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        self.means = np.zeros((task.n_classes, *task.x_shape), np.float32)

    def learn(self, x: Array, y: Labels) -> None:
        for sample, label in zip(x, y, strict=True):
            self.means[label] += (1 - self.decay) * (sample - self.means[label])

    def scores(self, x: Array) -> Array:
        return -((x[:, None] - self.means) ** 2).reshape(len(x), len(self.means), -1).sum(-1)
