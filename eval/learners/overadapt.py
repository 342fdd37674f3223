"""OverAdapt: the newest batch alone, the last layer alone; wins on online accuracy and learns nothing that lasts."""

from __future__ import annotations

from dataclasses import dataclass

from eval.training.online_learner import OnlineLearner


@dataclass
class Overadapt(OnlineLearner):
    """FIFO × head-only [near-future accuracy, sec. 3]."""

    sampler: str = "fifo"
    head_only = True
