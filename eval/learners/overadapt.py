"""OverAdapt: trains the last layer on the newest batch only; wins on online accuracy but learns nothing lasting."""

from __future__ import annotations

from dataclasses import dataclass

from driftline.eval.learner import Guide, Task
from driftline.eval.memory.samplers import SamplerName
from driftline.eval.training.online_learner import OnlineLearner


@dataclass
class Overadapt(OnlineLearner):
    """Trains the last layer on the newest samples only [near-future accuracy, sec. 3]."""

    sampler: SamplerName = "fifo"
    head_only = True
    guide = Guide("online", "near-future accuracy", "n D C", "to show that online accuracy misleads")

    def unused(self, task: Task) -> dict[str, str]:
        """It has no memory to choose from."""
        why = "it trains on the newest samples; fc-only has other samplers"
        return super().unused(task) | dict.fromkeys(("sampler", "memory", "alpha"), why)
