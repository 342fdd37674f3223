"""A-GEM: an update must not raise the average loss on a memory of the past [Chaudhry et al. 2018]."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import NonNegativeInt

from driftline.eval.engine.linear import Net, Params, Rule, on
from driftline.eval.history import Past
from driftline.eval.learner import Array, Guide, Labels, Task, bytes_of
from driftline.eval.memory.buffers import ON_STREAMS, Share, balanced
from driftline.eval.memory.samplers import Uniform
from driftline.eval.training.sgd_learner import NetLearner

SAMPLE = 256  # samples of the memory that an update uses [Chaudhry et al. 2018, sec. 5.3]


class Project(Rule):
    """Removes the component of the gradient that opposes the gradient on a sample of the memory (equation 11)."""

    def __init__(self, x: Any, y: Any, sample: int, rng: np.random.Generator, parts: Sequence[int] = ()) -> None:
        """parts: sizes of groups of the memory that are sampled equally; none: the sample is drawn from all."""
        self.x, self.y, self.sample, self.rng = x, y, sample, rng
        self.parts = parts or (len(y),)

    def gradient(self, net: Net, grads: Params, x: Any, y: Any) -> Params:
        """The data's gradient, projected if the two disagree."""
        each, starts = self.sample // len(self.parts), np.cumsum([0, *self.parts])
        past_x, past_y = self.x, self.y
        if each < max(self.parts):
            groups = zip(starts, self.parts, strict=False)
            places = [start + self.rng.choice(n, min(each, n), replace=False) for start, n in groups]
            drawn = on(np.concatenate(places), net)
            past_x, past_y = past_x[drawn], past_y[drawn]
        past = net.data_gradient(past_x, past_y)
        along = sum((g * r).sum() for g, r in zip(grads, past, strict=True))
        if along >= 0:
            return grads
        scale = along / sum((r**2).sum() for r in past)
        return [g - scale * r for g, r in zip(grads, past, strict=True)]


@dataclass
class Agem(NetLearner):
    """Finetuning whose gradient never opposes the gradient on a memory of past steps."""

    memory: NonNegativeInt = 0
    """samples in all, shared evenly by past steps; 0: as many as the first step has (one bucket), 500 on streams of
    batches, where they are a uniform sample of the past"""
    sample: NonNegativeInt | Literal["step"] = 0
    """samples of the memory that an update uses; `step`: as many as the first step has, as in CLEAR; 0: 256, on streams
    of batches as many as a batch has"""
    variant: Literal["paper", "reference"] = "paper"
    """`reference` keeps `memory` samples of *every* step and uses equal numbers of each, as Avalanche does"""
    cost = 2.0  # two gradients: on the data, and on as many samples of the memory
    guide = Guide("replay", "Chaudhry et al. 2018", "2 E n D C", "an update may not hurt the memory")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        super().begin(task, rng)
        self.limit = self.memory
        self.used = (0 if self.sample == "step" else self.sample) or task.batch or SAMPLE
        self.cost = 1 + (self.used / task.batch if task.batch else 1)
        self.shares: list[Share] = []
        self.past = Uniform(self.rng, self.memory or ON_STREAMS)
        self.sample_bytes = 0

    def learn_from(self, past: Past) -> None:
        """Train on the newest batch under the constraint, then offer it to the memory."""
        rule = None
        if past.start:
            x, y = past.take(self.past.positions)
            rule = Project(on(self.inputs(x), self.head), on(y, self.head), self.used, self.rng)
        x, y = past.newest()
        self.train(x, y, rule=rule)
        self.past.grow(past)
        self.sample_bytes = x[:1].nbytes + y[:1].nbytes

    def stored_bytes(self) -> int:
        """Weights and stored samples."""
        return bytes_of([self.head, self.shares]) + len(self.past.positions) * self.sample_bytes

    def on_correction(self) -> Rule | None:
        """The same constraint; corrections do not enter the memory."""
        return self._constraint([])

    def _constraint(self, parts: Sequence[int]) -> Rule | None:
        """The constraint on the memory, sampled by `parts`; None while the memory is empty."""
        if not self.shares:
            return None
        x, y = (np.concatenate([pair[i] for pair in self.shares]) for i in (0, 1))
        return Project(on(self.inputs(x), self.head), on(y, self.head), self.used, self.rng, parts)

    def learn(self, x: Array, y: Labels) -> None:
        self.limit = self.limit or len(y)
        if self.sample == "step" and not self.shares:
            self.used = len(y)
        parts = [len(labels) for _, labels in self.shares] if self.variant == "reference" else []
        self.train(x, y, rule=self._constraint(parts))
        limit = self.limit * (len(self.shares) + 1 if self.variant == "reference" else 1)
        self.shares = balanced(self.shares, x, y, limit, self.rng)
