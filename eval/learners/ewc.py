"""Elastic weight consolidation [Kirkpatrick et al. 2017; online: Schwarz et al. 2018]."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import NonNegativeFloat

from driftline.curate.core.executor import one_thread
from driftline.eval.engine.linear import Net, Params, Rule, on, zeros
from driftline.eval.learner import Array, Guide, Labels, Task
from driftline.eval.training.sgd_learner import NetLearner


@dataclass
class Anchor:
    """Weights after a step and their importance."""

    params: Params
    """the weights"""
    fisher: Params
    """Fisher information of each weight, same shapes"""


class Penalty(Rule):
    """Gradient of strength / 2 · Σ F (θ − θ*)², over all anchors.

    rate: the learning rate of SGD. Where strength · F is above 1 / rate, a step would go beyond the anchor, the next
    one further, and the weights would not stay finite: the pull of all anchors together is held to 1 / rate. None: it
    is not.
    """

    def __init__(self, anchors: list[Anchor], strength: float, rate: float | None = None) -> None:
        most = math.inf if rate is None else 1 / (rate * len(anchors))
        self.pulls = [(a.params, [(strength * f).clamp(max=most) for f in a.fisher]) for a in anchors]

    def gradient(self, net: Net, grads: Params, x: Any, y: Any) -> Params:
        for params, strengths in self.pulls:
            parts = zip(grads, strengths, net.params, params, strict=True)
            grads = [g.addcmul(strength, p - old) for g, strength, p, old in parts]
        return grads


def fisher_of_batches(net: Net, x: Any, y: Any, batch: int) -> Params:
    """Avalanche's substitute for it: mean over batches of the squared gradient of the batch's mean loss."""
    fisher = zeros(net.params)
    starts = range(0, len(y), batch)
    for start in starts:
        grads = net.data_gradient(x[start : start + batch], y[start : start + batch])
        fisher = [f + g**2 / len(starts) for f, g in zip(fisher, grads, strict=True)]
    return fisher


@dataclass
class Ewc(NetLearner):
    """Finetuning with a quadratic pull towards past weights, weighted by each weight's Fisher information."""

    strength: NonNegativeFloat = 0.4
    """λ of λ/2 · Σ F (θ − θ*)² (CLEAR: 0.4)"""
    mode: Literal["online", "separate"] = "online"
    """`online` keeps one anchor and F = keep · F + F_new, `separate` keeps one anchor per step"""
    keep: NonNegativeFloat = 0.1
    """factor of the old F in mode `online` (CLEAR: 0.1)"""
    variant: Literal["paper", "reference"] = "paper"
    """`paper` takes the Fisher information of single samples; `reference` that of Avalanche: squared gradients of batch
    means, a hundred times smaller, and a penalty without the factor 1/2"""
    batch_cost = 1.0  # Fisher information: one pass after the updates
    guide = Guide("regularised", "Kirkpatrick et al. 2017", "E n D C", "no sample may be stored")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """Start without anchors. Raises IncompatibleStream for a budget of one update a batch."""
        super().begin(task, rng)
        if self.mode == "online":
            self.budget.check_anchor(self.cost, self.batch_cost)
        self.anchors: list[Anchor] = []

    def on_correction(self) -> Rule | None:
        return Penalty(self.anchors, self.strength, self.correct_lr) if self.anchors else None

    def learn(self, x: Array, y: Labels) -> None:
        import torch

        strength = self.strength * (2 if self.variant == "reference" else 1)
        rate = self.rate if self.optimiser == "sgd" else None
        if not self.train(x, y, rule=Penalty(self.anchors, strength, rate) if self.anchors else None):
            return
        self.extra += self.batch_cost * (1 if self.task.updates is not None else -(-len(y) // self.batch))
        with one_thread(), torch.no_grad():
            data, labels = on(self.inputs(x), self.head), on(y, self.head)
            if self.variant == "paper":
                fisher = self.head.fisher(data, labels)
            else:
                fisher = fisher_of_batches(self.head, data, labels, self.batch)
            if self.mode == "online" and self.anchors:
                fisher = [f + self.keep * old for f, old in zip(fisher, self.anchors[0].fisher, strict=True)]
            anchor = Anchor([p.clone() for p in self.head.params], fisher)
        self.anchors = [anchor] if self.mode == "online" else [*self.anchors, anchor]
