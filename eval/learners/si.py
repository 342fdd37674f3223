"""Synaptic intelligence: importance is gathered along the path of training [Zenke et al. 2017]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eval.engine.linear import Head, Rule
from eval.learner import Array, Labels, Task
from eval.learners.linear import LinearLearner


class Path(Rule):
    """Adds the gradient of strength · Σ Ω (θ − θ*)² and integrates −g · Δθ along the way (equations 3 and 4)."""

    def __init__(self, start: Head, omega_w: Any, omega_b: Any, strength: float) -> None:
        import torch

        self.start, self.omega_w, self.omega_b, self.strength = start, omega_w, omega_b, strength
        self.path_w, self.path_b = torch.zeros_like(start.weights), torch.zeros_like(start.bias)

    def gradient(self, head: Head, dw: Any, db: Any, x: Any, y: Any) -> tuple[Any, Any]:
        """The data's gradient plus the penalty's."""
        dw = dw + 2 * self.strength * self.omega_w * (head.weights - self.start.weights)
        return dw, db + 2 * self.strength * self.omega_b * (head.bias - self.start.bias)

    def moved(self, dw: Any, db: Any, step_w: Any, step_b: Any) -> None:
        """How much this step of each weight lowered the loss of the data."""
        self.path_w -= dw * step_w
        self.path_b -= db * step_b


@dataclass
class Si(LinearLearner):
    """Finetuning with a pull towards the last weights, as strong as each weight has lowered the loss so far.

    strength: c of equation 4 (CLEAR: 1e-4). damping: ξ of equation 5, keeps Ω finite where a weight hardly moved.
    (Avalanche 0.6 on a CPU adds nothing at all: its record of old weights is the live weights.)
    """

    strength: float = 1e-4
    damping: float = 1e-7

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """No importance."""
        import torch

        super().begin(task, rng)
        self.omega_w, self.omega_b = torch.zeros_like(self.head.weights), torch.zeros_like(self.head.bias)

    def learn(self, x: Array, y: Labels) -> None:
        """Train under the penalty, then add this step's importance (equation 5)."""
        start = self.head.copy()
        rule = Path(start, self.omega_w, self.omega_b, self.strength)
        self.train(x, y, rule=rule)
        moved_w, moved_b = self.head.weights - start.weights, self.head.bias - start.bias
        self.omega_w = self.omega_w + (rule.path_w / (moved_w**2 + self.damping)).clamp(min=0)
        self.omega_b = self.omega_b + (rule.path_b / (moved_b**2 + self.damping)).clamp(min=0)
