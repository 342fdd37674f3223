"""FC-Only: a frozen network and a linear classifier, trained on samples of the past."""

from __future__ import annotations

from dataclasses import dataclass

from driftline.eval.learner import Guide
from driftline.eval.training.online_learner import OnlineLearner


@dataclass
class FcOnly(OnlineLearner):
    """Trains the classifier only, on samples drawn uniformly [near-future accuracy, sec. 5, FC-Only]."""

    head_only = True
    guide = Guide("online", "near-future accuracy, sec. 5", "n D C", "the base row on fast streams")
