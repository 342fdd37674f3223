"""Experience replay on a stream: every update draws from all of the past, stored without limit."""

from __future__ import annotations

from dataclasses import dataclass

from driftline.eval.learner import Guide
from driftline.eval.training.online_learner import OnlineLearner


@dataclass
class ErOnline(OnlineLearner):
    """Cross-entropy on past samples; on images trains the whole network; on features it is FC-Only [sec. 5, ER]."""

    guide = Guide("online", "near-future accuracy, sec. 5", "n D C", "replay on a stream, with a network")
