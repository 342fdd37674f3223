"""FC-Only: a frozen network and a linear classifier, trained on samples of the past."""

from __future__ import annotations

from dataclasses import dataclass

from eval.training.online_learner import OnlineLearner


@dataclass
class FcOnly(OnlineLearner):
    """The classifier alone, on samples drawn uniformly [near-future accuracy, sec. 5, FC-Only]."""

    sampler: str = "uniform"
    head_only = True
