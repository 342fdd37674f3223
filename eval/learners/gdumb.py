"""GDumb: a greedy class-balanced memory, and a model trained from scratch on it alone [Prabhu et al. 2020]."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import NonNegativeInt

from driftline.eval.learner import Array, Guide, Labels, Needs, Task
from driftline.eval.memory.buffers import class_reservoirs, greedy_balanced
from driftline.eval.training.sgd_learner import NetLearner


@dataclass
class Gdumb(NetLearner):
    """Trains random weights on a class-balanced memory after each step, and on nothing else."""

    memory: NonNegativeInt = 0
    """samples; 0: as many as the first step has (CLEAR: one bucket)"""
    variant: Literal["paper", "reference"] = "reference"
    """`reference` keeps a uniform sample of each class, as Avalanche and therefore CLEAR's runs do; `paper` is the
    greedy sampler of GDumb's paper, for classes that come one after the other: a full and balanced memory admits new
    classes only, so that it equals `nap` where all classes come at once"""

    needs = Needs(whole_steps="it trains from random weights on its memory after every step")
    guide = Guide("replay", "Prabhu et al. 2020", "E M D C", "whether a method is better than a balanced memory alone")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        super().begin(task, rng)
        self.limit = self.memory
        self.x: Array = np.zeros((0, *task.x_shape), np.float32)
        self.y: Labels = np.zeros(0, np.int64)
        self.weight = np.zeros(0)

    def samples_trained(self, sizes: Sequence[int]) -> float:
        return self.epochs * float(sum(min(self.memory or sizes[0], sum(sizes[: i + 1])) for i in range(len(sizes))))

    def learn(self, x: Array, y: Labels) -> None:
        self.limit = self.limit or len(y)
        labels = np.concatenate([self.y, y])
        if self.variant == "reference":
            weight = np.concatenate([self.weight, self.rng.random(len(y))])
            keep = class_reservoirs(labels, weight, self.limit)
            self.weight = weight[keep]
        else:
            keep = greedy_balanced(labels, np.arange(len(self.y)), self.limit, self.rng)
        self.x, self.y = np.concatenate([self.x.astype(x.dtype), x])[keep], labels[keep]
        self.reset()
        self.train(self.x, self.y)
