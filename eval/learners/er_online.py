"""Experience replay on a stream: every update draws from all of the past, stored without limit."""

from __future__ import annotations

from dataclasses import dataclass

from eval.training.online_learner import OnlineLearner


@dataclass
class ErOnline(OnlineLearner):
    """Cross-entropy on samples of the past, half of them the newest; the whole network on images [sec. 5, ER]."""

    sampler: str = "mixed"
