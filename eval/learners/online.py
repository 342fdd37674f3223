"""Heads and networks that learn from a stream, batch after batch; what they have in common is `OnlineLearner`."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from driftline.eval.learner import Guide, Labels, Task
from driftline.eval.memory.samplers import SamplerName
from driftline.eval.training.online_learner import OnlineLearner


@dataclass
class ErOnline(OnlineLearner):
    """Cross-entropy on past samples; on images trains the whole network; on features it is FC-Only [sec. 5, ER]."""

    guide = Guide("online", "near-future accuracy, sec. 5", "n D C", "replay on a stream, with a network")


@dataclass
class FcOnly(OnlineLearner):
    """Trains the classifier only, on samples drawn uniformly [near-future accuracy, sec. 5, FC-Only]."""

    head_only = True
    guide = Guide("online", "near-future accuracy, sec. 5", "n D C", "the base row on fast streams")


@dataclass
class Ace(OnlineLearner):
    """The loss of new samples covers the classes of the newest batch only; that of older samples covers all classes."""

    guide = Guide("online", "Caccia et al. 2022", "n D C", "new classes displace old ones; this is ER-ACE")

    def masked(self, incoming: Any, new: Labels) -> Any:
        """For new samples every class that is not in the newest batch."""
        outside = np.ones(self.task.n_classes, bool)
        outside[new] = False
        return incoming[:, None] & outside[None]


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
