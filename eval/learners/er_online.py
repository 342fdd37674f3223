"""Experience replay on a stream: every update draws from all of the past, stored without limit."""

from __future__ import annotations

from dataclasses import dataclass

from eval.memory.samplers import SamplerName
from eval.training.online_learner import OnlineLearner


@dataclass
class ErOnline(OnlineLearner):
    """Cross-entropy on past samples, half of them the newest; on images trains the whole network [sec. 5, ER]."""

    sampler: SamplerName = "mixed"
