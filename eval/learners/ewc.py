"""Elastic weight consolidation [Kirkpatrick et al. 2017; online: Schwarz et al. 2018]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from curate.ground.errors import BadConfig
from eval.engine.linear import Head, Rule, data_gradient, on, one_thread
from eval.learner import Array, Labels, Task
from eval.learners.linear import LinearLearner


@dataclass
class Anchor:
    """Weights after a step, and how much each mattered there (Fisher information), same shapes."""

    weights: Any
    bias: Any
    fisher_w: Any
    fisher_b: Any


class Penalty(Rule):
    """Gradient of strength / 2 · Σ F (θ − θ*)², over all anchors."""

    def __init__(self, anchors: list[Anchor], strength: float) -> None:
        self.anchors, self.strength = anchors, strength

    def gradient(self, head: Head, dw: Any, db: Any, x: Any, y: Any) -> tuple[Any, Any]:
        """The data's gradient plus the penalty's."""
        for a in self.anchors:
            dw = dw + self.strength * a.fisher_w * (head.weights - a.weights)
            db = db + self.strength * a.fisher_b * (head.bias - a.bias)
        return dw, db


def fisher(head: Head, x: Any, y: Any) -> tuple[Any, Any]:
    """Diagonal Fisher information of a linear head: mean over samples of the squared gradient of one sample's loss.

    For one sample the gradient is (p − onehot) ⊗ x, so its square is the product of squares: no loop over samples.
    """
    import torch

    g = torch.softmax(torch.addmm(head.bias, x, head.weights.T), 1)
    g[torch.arange(len(y), device=y.device), y] -= 1
    g = g**2 / len(y)
    return g.T @ x**2, g.sum(0)


def fisher_of_batches(head: Head, x: Any, y: Any, batch: int) -> tuple[Any, Any]:
    """What Avalanche computes instead: mean over batches of the squared gradient of the batch's mean loss."""
    import torch

    w, b = torch.zeros_like(head.weights), torch.zeros_like(head.bias)
    starts = range(0, len(y), batch)
    for start in starts:
        dw, db = data_gradient(head, x[start : start + batch], y[start : start + batch])
        w, b = w + dw**2 / len(starts), b + db**2 / len(starts)
    return w, b


@dataclass
class Ewc(LinearLearner):
    """Finetuning with a quadratic pull towards past weights, as strong as each weight mattered.

    strength: λ of λ/2 · Σ F (θ − θ*)² (CLEAR: 0.4). mode: "online" keeps one anchor and F = keep · F + F_new
    (CLEAR: keep 0.1), "separate" keeps one anchor a step. variant: "paper" takes the per-sample Fisher, "reference"
    Avalanche's: squared gradients of batch means, a hundred times smaller, and a penalty without the half.
    """

    strength: float = 0.4
    mode: str = "online"
    keep: float = 0.1
    variant: str = "paper"

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """No anchors."""
        if self.mode not in ("online", "separate") or self.variant not in ("paper", "reference"):
            raise BadConfig(
                f"mode is {self.mode!r}, variant is {self.variant!r}.",
                "Expected online or separate, and paper or reference.",
            )
        super().begin(task, rng)
        self.anchors: list[Anchor] = []

    def learn(self, x: Array, y: Labels) -> None:
        """Train under the penalty, then set the anchor."""
        import torch

        strength = self.strength * (2 if self.variant == "reference" else 1)
        self.train(x, y, rule=Penalty(self.anchors, strength) if self.anchors else None)
        with one_thread(), torch.inference_mode():
            data, labels = on(self.inputs(x), self.head), on(y, self.head)
            if self.variant == "paper":
                w, b = fisher(self.head, data, labels)
            else:
                w, b = fisher_of_batches(self.head, data, labels, self.batch)
            if self.mode == "online" and self.anchors:
                w, b = w + self.keep * self.anchors[0].fisher_w, b + self.keep * self.anchors[0].fisher_b
            anchor = Anchor(self.head.weights.clone(), self.head.bias.clone(), w, b)
        self.anchors = [anchor] if self.mode == "online" else [*self.anchors, anchor]
