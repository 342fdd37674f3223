"""Synaptic intelligence: importance is accumulated along the path of training [Zenke et al. 2017]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import NonNegativeFloat, PositiveFloat

from eval.engine.linear import Net, Params, Rule, zeros
from eval.learner import Array, Labels, Task
from eval.training.sgd_learner import NetLearner


class Path(Rule):
    """Adds the gradient of strength · Σ Ω (θ − θ*)² and integrates −g · Δθ along the path (equations 3 and 4)."""

    def __init__(self, start: Params, omega: Params, strength: float) -> None:
        self.start, self.omega, self.strength = start, omega, strength
        self.path = zeros(start)

    def gradient(self, net: Net, grads: Params, x: Any, y: Any) -> Params:
        """The data's gradient plus the penalty's."""
        parts = zip(grads, self.omega, net.params, self.start, strict=True)
        return [g + 2 * self.strength * o * (p - old) for g, o, p, old in parts]

    def moved(self, grads: Params, steps: Params) -> None:
        """Add how much this update of each weight lowered the loss of the data."""
        for path, g, step in zip(self.path, grads, steps, strict=True):
            path -= g * step


@dataclass
class Si(NetLearner):
    """Finetuning with a pull towards the last weights, weighted by how much each weight has lowered the loss so far."""

    strength: NonNegativeFloat = 1e-4
    """c of equation 4 (CLEAR: 1e-4)"""
    damping: PositiveFloat = 1e-3
    """ξ of equation 5 (section 4: 1e-3), keeps Ω finite if a weight has hardly changed"""
    variant: Literal["paper", "reference"] = "paper"
    """`reference` is plain finetuning, as Avalanche 0.6 on a CPU: its record of old weights is the live weights"""

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """Start with importances of zero."""
        super().begin(task, rng)
        self.omega = zeros(self.head.params)

    def learn(self, x: Array, y: Labels) -> None:
        """Train under the penalty, then add this step's importances (equation 5)."""
        if self.variant == "reference":
            self.train(x, y)
            return
        start = [p.clone() for p in self.head.params]
        rule = Path(start, self.omega, self.strength)
        self.train(x, y, rule=rule)
        parts = zip(self.omega, rule.path, self.head.params, start, strict=True)
        self.omega = [o + (path / ((p - old) ** 2 + self.damping)).clamp(min=0) for o, path, p, old in parts]
