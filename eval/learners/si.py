"""Synaptic intelligence: importance is accumulated along the path of training [Zenke et al. 2017]."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import NonNegativeFloat, PositiveFloat

from driftline.eval.engine.linear import Net, Params, Rule, zeros
from driftline.eval.learner import Array, Guide, Labels, Task
from driftline.eval.training.sgd_learner import NetLearner


class Path(Rule):
    """Adds the gradient of strength · Σ Ω (θ − θ*)² and integrates −g · Δθ along the path (equations 3 and 4)."""

    def __init__(self, start: Params, omega: Params, strength: float) -> None:
        self.start, self.omega, self.strength = start, omega, strength
        self.path = zeros(start)

    def gradient(self, net: Net, grads: Params, x: Any, y: Any) -> Params:
        parts = zip(grads, self.omega, net.params, self.start, strict=True)
        return [g.addcmul(o, p - old, value=2 * self.strength) for g, o, p, old in parts]

    def moved(self, grads: Params, steps: Params) -> None:
        """Add how much this update of each weight lowered the loss of the data."""
        for path, g, step in zip(self.path, grads, steps, strict=True):
            path.addcmul_(g, step, value=-1)


class WholePath(Path):
    """Integrates the gradient of the whole loss, penalty included, as Avalanche does."""

    def gradient(self, net: Net, grads: Params, x: Any, y: Any) -> Params:
        """The same; it is kept for `moved`."""
        self.whole = super().gradient(net, grads, x, y)
        return self.whole

    def moved(self, grads: Params, steps: Params) -> None:
        """Add how much this update of each weight lowered the whole loss."""
        super().moved(self.whole, steps)


@dataclass
class Si(NetLearner):
    """Finetuning with a pull towards the last weights, weighted by how much each weight has lowered the loss so far."""

    strength: NonNegativeFloat = 1e-4
    """c of equation 4 (CLEAR: 1e-4)"""
    damping: PositiveFloat = 1e-3
    """ξ of equation 5 (section 4: 1e-3), keeps Ω finite if a weight has hardly changed"""
    variant: Literal["paper", "reference"] = "paper"
    """`reference` is the SI of CLEAR's runs (Avalanche 0.1): Ω at most 0.001, ξ = 1e-7, half the strength, and the
    gradient of the penalty is part of the path. Avalanche 0.6 does the same on a GPU and is plain finetuning on a CPU,
    where its record of old weights is the live weights"""

    guide = Guide("regularised", "Zenke et al. 2017", "E n D C", "as ewc, without a pass for the importance")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """Start with importances of zero. Raises IncompatibleStream for a budget of one update a batch."""
        super().begin(task, rng)
        self.budget.check_anchor()
        self.omega = zeros(self.head.params)
        self.trained = 0  # updates up to the last step

    def on_correction(self) -> Rule | None:
        """The pull towards the weights of the last step; a correction is no step and changes no importance."""
        if self.gradient_steps == self.trained:
            self.anchor = [p.clone() for p in self.head.params]
        return self._path(self.anchor)[0]

    def _path(self, start: Params) -> tuple[Path, float, float]:
        """The rule of a training from these weights; what keeps Ω finite, and the least importance."""
        if self.variant == "reference":
            return WholePath(start, [o.clamp(max=1e-3) for o in self.omega], self.strength / 2), 1e-7, -np.inf
        return Path(start, self.omega, self.strength), self.damping, 0.0

    def learn(self, x: Array, y: Labels) -> None:
        """Train under the penalty, then add this step's importances (equation 5)."""
        start = [p.clone() for p in self.head.params]
        rule, damping, least = self._path(start)
        self.train(x, y, rule=rule)
        parts = zip(self.omega, rule.path, self.head.params, start, strict=True)
        self.omega = [o + (path / ((p - old) ** 2 + damping)).clamp(min=least) for o, path, p, old in parts]
        self.trained = self.gradient_steps
