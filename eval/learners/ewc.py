"""Elastic weight consolidation [Kirkpatrick et al. 2017; online: Schwarz et al. 2018]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from curate.core.errors import BadConfig
from curate.core.torch_threads import one_thread
from eval.engine.linear import Net, Params, Rule, on, zeros
from eval.learner import Array, Labels, Task, check_variant
from eval.training.sgd_learner import NetLearner


@dataclass
class Anchor:
    """params: weights after a step. fisher: how much each mattered there, same shapes."""

    params: Params
    fisher: Params


class Penalty(Rule):
    """Gradient of strength / 2 · Σ F (θ − θ*)², over all anchors."""

    def __init__(self, anchors: list[Anchor], strength: float) -> None:
        self.anchors, self.strength = anchors, strength

    def gradient(self, net: Net, grads: Params, x: Any, y: Any) -> Params:
        """The data's gradient plus the penalty's."""
        for a in self.anchors:
            parts = zip(grads, a.fisher, net.params, a.params, strict=True)
            grads = [g + self.strength * f * (p - old) for g, f, p, old in parts]
        return grads


def fisher_of_batches(net: Net, x: Any, y: Any, batch: int) -> Params:
    """What Avalanche computes instead: mean over batches of the squared gradient of the batch's mean loss."""
    found = zeros(net.params)
    starts = range(0, len(y), batch)
    for start in starts:
        grads = net.data_gradient(x[start : start + batch], y[start : start + batch])
        found = [f + g**2 / len(starts) for f, g in zip(found, grads, strict=True)]
    return found


@dataclass
class Ewc(NetLearner):
    """Finetuning with a quadratic pull towards past weights, as strong as each weight mattered.

    strength: λ of λ/2 · Σ F (θ − θ*)² (CLEAR: 0.4). mode: "online" keeps one anchor and F = keep · F + F_new
    (CLEAR: keep 0.1), "separate" keeps one anchor a step. variant: "paper" takes the per-sample Fisher, "reference"
    Avalanche's: squared gradients of batch means, a hundred times smaller, and a penalty without the half.
    """

    strength: float = 0.4
    mode: str = "online"
    keep: float = 0.1
    variant: str = "paper"
    cost = 2.0  # Fisher information takes another pass over a batch

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """No anchors."""
        check_variant(self.variant)
        if self.mode not in ("online", "separate"):
            raise BadConfig(f"mode is {self.mode!r}.", "Expected online or separate.")
        super().begin(task, rng)
        self.anchors: list[Anchor] = []

    def on_correction(self) -> Rule | None:
        """The same penalty."""
        return Penalty(self.anchors, self.strength) if self.anchors else None

    def learn(self, x: Array, y: Labels) -> None:
        """Train under the penalty, then set the anchor."""
        import torch

        strength = self.strength * (2 if self.variant == "reference" else 1)
        if not self.train(x, y, rule=Penalty(self.anchors, strength) if self.anchors else None):
            return
        with one_thread(), torch.no_grad():
            data, labels = on(self.inputs(x), self.head), on(y, self.head)
            if self.variant == "paper":
                found = self.head.fisher(data, labels)
            else:
                found = fisher_of_batches(self.head, data, labels, self.batch)
            if self.mode == "online" and self.anchors:
                found = [f + self.keep * old for f, old in zip(found, self.anchors[0].fisher, strict=True)]
            anchor = Anchor([p.clone() for p in self.head.params], found)
        self.anchors = [anchor] if self.mode == "online" else [*self.anchors, anchor]
