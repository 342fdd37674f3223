"""A-GEM: a step may not raise the average loss on a memory of the past [Chaudhry et al. 2018]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eval.engine.linear import Net, Params, Rule, on
from eval.learner import Array, Labels, Task
from eval.learners.linear import LinearLearner
from eval.memory import Share, balanced


class Project(Rule):
    """Removes from the gradient what points against the gradient on a sample of the memory (equation 11)."""

    def __init__(self, x: Any, y: Any, sample: int, rng: np.random.Generator) -> None:
        self.x, self.y, self.sample, self.rng = x, y, sample, rng

    def gradient(self, net: Net, grads: Params, x: Any, y: Any) -> Params:
        """The data's gradient, projected where the two disagree."""
        drawn = on(self.rng.choice(len(self.y), min(self.sample, len(self.y)), replace=False), net)
        past = net.data_gradient(self.x[drawn], self.y[drawn])
        along = sum((g * r).sum() for g, r in zip(grads, past, strict=True))
        if along >= 0:
            return grads
        scale = along / sum((r**2).sum() for r in past)
        return [g - scale * r for g, r in zip(grads, past, strict=True)]


@dataclass
class Agem(LinearLearner):
    """Finetuning whose gradient never points against the gradient on a memory of past steps.

    memory: samples in all, shared evenly by past steps; 0 means as many as the first step has (one bucket; Avalanche
    and CLEAR's code keep that many *per* step). sample: samples of the memory a step looks at.
    """

    memory: int = 0
    sample: int = 256

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """An empty memory."""
        super().begin(task, rng)
        self.limit = self.memory
        self.kept: list[Share] = []

    def learn(self, x: Array, y: Labels) -> None:
        """Train under the constraint, then store."""
        self.limit = self.limit or len(y)
        rule = None
        if self.kept:
            past_x = on(self.inputs(np.concatenate([a for a, _ in self.kept])), self.head)
            past_y = on(np.concatenate([b for _, b in self.kept]), self.head)
            rule = Project(past_x, past_y, self.sample, self.rng)
        self.train(x, y, rule=rule)
        self.kept = balanced(self.kept, x, y, self.limit, self.rng)
