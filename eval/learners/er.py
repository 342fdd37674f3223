"""Experience replay: half of every batch comes from a memory of past steps [Chaudhry et al. 2019]."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import NonNegativeInt

from driftline.eval.learner import Array, Guide, Labels, Needs, Task
from driftline.eval.memory.samplers import Share, balanced
from driftline.eval.training.sgd_learner import NetLearner


@dataclass
class Er(NetLearner):
    """Trains on batches of which half come from the step's data and half from a memory of past steps."""

    memory: NonNegativeInt = 0
    """samples in all; 0: as many as the first step has (CLEAR: one bucket). Every past step has an equal share, a
    random subset of its share before"""
    variant: Literal["paper", "reference"] = "paper"
    """`reference` divides a batch evenly among the step and each past one, as CLEAR's code does, which gives an epoch
    up to five times the updates"""

    needs = Needs(whole_steps="it keeps equal shares of whole steps; er-online replays on streams")
    guide = Guide("replay", "Chaudhry et al. 2019", "2 E n D C", "a memory of fixed size; hard to beat")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        super().begin(task, rng)
        self.limit = self.memory
        self.shares: list[Share] = []

    def samples_trained(self, sizes: Sequence[int]) -> float:
        """From the second step on, every batch comes with as many samples from the memory."""
        limit = self.memory or sizes[0]
        if self.variant == "reference":
            updates = (-(-n // -(-self.batch // (t + 1))) for t, n in enumerate(sizes))
            return float(self.epochs * self.batch * sum(updates))
        return self.epochs * (sizes[0] + sum(n + min(limit, self.batch) * -(-n // self.batch) for n in sizes[1:]))

    def learn(self, x: Array, y: Labels) -> None:
        self.limit = self.limit or len(y)
        replay = None
        groups = [len(labels) for _, labels in self.shares] if self.variant == "reference" else []
        if self.shares:
            replay = (np.concatenate([a for a, _ in self.shares]), np.concatenate([b for _, b in self.shares]))
        self.train(x, y, replay, groups=groups)
        self.shares = balanced(self.shares, x, y, self.limit, self.rng)
