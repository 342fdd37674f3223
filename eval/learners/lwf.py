"""Learning without forgetting: the model before this step is the teacher [Li and Hoiem 2016]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eval.engine.linear import Net, Params, Rule, scores_of_two
from eval.learner import Array, Labels
from eval.learners.net import NetLearner


class Distil(Rule):
    """Adds the gradient of weight · T² · KL(teacher ‖ student) at temperature T, mean over the batch."""

    def __init__(self, teacher: Net, weight: float, temperature: float) -> None:
        self.teacher, self.weight, self.temperature = teacher, weight, temperature

    def gradient(self, net: Net, grads: Params, x: Any, y: Any) -> Params:
        """The data's gradient plus the distillation's: T · (p_student − p_teacher) in the scores."""
        import torch

        t = self.temperature
        student, teacher = (torch.softmax(s / t, 0) for s in scores_of_two(net, self.teacher, x))
        pull = net.pulled(x, (self.weight * t * (student - teacher) / len(y)).T)
        return [g + p for g, p in zip(grads, pull, strict=True)]


@dataclass
class Lwf(NetLearner):
    """Finetuning that also imitates, on the new data, the model as it was before them.

    weight: α at the last of `ramp` steps; it grows evenly from 0 at the first (CLEAR: 0 to 2 over 10). temperature: T.
    """

    weight: float = 2.0
    ramp: int = 10  # steps
    temperature: float = 1.0

    def reset(self) -> None:
        """New weights; no teacher yet."""
        super().reset()
        self.steps_seen = 0

    def learn(self, x: Array, y: Labels) -> None:
        """Train with the old model as the teacher."""
        alpha = self.weight * min(self.steps_seen / max(1, self.ramp - 1), 1.0)
        self.train(x, y, rule=Distil(self.head.copy(), alpha, self.temperature) if alpha else None)
        self.steps_seen += 1
