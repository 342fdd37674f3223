"""CosineFC: a classifier on angles, in which no class can dominate by the length of its weights [Hou et al. 2019]."""

from __future__ import annotations

from dataclasses import dataclass

from driftline.eval.learner import Guide, Task
from driftline.eval.training.online_learner import OnlineLearner


@dataclass
class CosineFc(OnlineLearner):
    """Scores σ · cos(x, w), σ learned; on images trains the whole network [sec. 4.1, CosineFC]."""

    cosine = True
    guide = Guide("online", "Hou et al. 2019", "n D C", "frequent classes dominate")

    def unused(self, task: Task) -> dict[str, str]:
        """What angles and a single layer have no use for."""
        plain = {"momentum": "on vectors it takes plain steps"} if self.net == "linear" else {}
        scale = {"scale": "an angle does not depend on the length of a sample"}
        return super().unused(task) | plain | scale | {"hidden": "it has no hidden layer"}
