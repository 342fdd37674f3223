"""Learning without forgetting: the model before this step is the teacher [Li and Hoiem 2016].

It teaches the classes that it has learned; the head's other outputs are free, as in Avalanche.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from driftline.eval.engine.linear import Net, Pull, Rule
from driftline.eval.learner import Array, Guide, Labels, Task
from driftline.eval.training.sgd_learner import HEADS, NetLearner


class Distil(Rule):
    """Adds the gradient of weight · T² · KL(teacher ‖ student) at temperature T, mean over the batch."""

    def __init__(
        self, teacher: Net, weight: float, temperature: float, unlearned: Sequence[int] = (), samples: int = 0
    ) -> None:
        """unlearned: classes that the teacher has not seen; the distributions leave them out. samples: of a training on
        features, for which the teacher is asked once each; 0: it is asked at every update."""
        self.teacher, self.weight, self.temperature, self.unlearned = teacher, weight, temperature, list(unlearned)
        self.asked = np.zeros(samples, bool)
        self.answers: Any = None
        """(C, samples), once asked"""

    def pull(self, net: Net, x: Any, rows: npt.NDArray[np.int64] | None = None) -> Pull:
        """T · (p_student − p_teacher) in the scores; it costs one forward pass of the teacher, over new samples."""
        import torch

        t = self.temperature

        def softmax(scores: Any) -> Any:
            classes_first = scores.T / t  # faster, along memory
            if self.unlearned:
                classes_first[self.unlearned] = -torch.inf
            return torch.softmax(classes_first, 0).T

        if rows is None or not len(self.asked):
            teacher = softmax(self.teacher.scores(x))
        else:
            places = torch.from_numpy(rows).to(x.device)
            if self.answers is None:
                self.answers = torch.empty(len(self.teacher.params[-1]), len(self.asked), device=x.device)
            if not self.asked[rows].all():
                self.answers.index_copy_(1, places, softmax(self.teacher.scores(x)).T)
                self.asked[rows] = True
            teacher = self.answers.index_select(1, places).T

        def off(scores: Any, of: slice = slice(None)) -> Any:
            return (softmax(scores) - teacher[of]) * (self.weight * t / len(teacher))

        return off


@dataclass
class Lwf(NetLearner):
    """Finetuning that also imitates, on the new data, the model from before the step."""

    weight: NonNegativeFloat = 2.0
    """α at the last of `ramp` steps; it grows linearly from 0 at the first (CLEAR: 0 to 2 over 10)"""
    ramp: PositiveInt = 10
    """steps over which the weight grows (CLEAR's code: 10, its text: 12)"""
    temperature: PositiveFloat = 1.0
    """temperature T of the distillation"""
    cost = 4 / 3  # the teacher's forward pass
    guide = Guide("regularised", "Li & Hoiem 2016", "E n D C", "no sample may be stored; the old model teaches")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """Start without a teacher. Raises IncompatibleStream for a budget of one update a batch."""
        super().begin(task, rng)
        self.budget.check_anchor(self.cost)

    def reset(self) -> None:
        super().reset()
        self.steps_seen = self.trained = 0
        self.unlearned = set(range(self.task.n_classes))

    def on_correction(self) -> Rule | None:
        """The teacher is the model from before the first correction. It teaches all classes, as in OCRR's reference."""
        if self.gradient_steps == self.trained:
            self.before = self.head.copy()
        return Distil(self.before, self.weight, self.temperature) if self.weight else None

    def _distil(self, teacher: Net, weight: float, samples: int) -> Rule | None:
        """None for a teacher without weight, or that has learned nothing."""
        if not weight or len(self.unlearned) == self.task.n_classes:
            return None
        asked = samples if self.net in HEADS else 0  # images are augmented again at each update
        return Distil(teacher, weight, self.temperature, sorted(self.unlearned), asked)

    def learn(self, x: Array, y: Labels) -> None:
        alpha = self.weight * min(self.steps_seen / max(1, self.ramp - 1), 1.0)
        self.train(x, y, rule=self._distil(self.head.copy(), alpha, len(x)))
        self.unlearned -= set(y.tolist())
        self.steps_seen += 1
        self.trained = self.gradient_steps
