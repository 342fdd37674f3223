"""ER-ACE: asymmetric cross-entropy, so that new classes do not displace old ones [Caccia et al. 2022]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from driftline.eval.learner import Guide, Labels
from driftline.eval.training.online_learner import OnlineLearner


@dataclass
class Ace(OnlineLearner):
    """The loss of new samples covers the classes of the newest batch only; that of older samples covers all classes."""

    guide = Guide("online", "Caccia et al. 2022", "n D C", "new classes displace old ones; this is ER-ACE")

    def masked(self, incoming: Any, new: Labels) -> Any:
        """For new samples every class that is not in the newest batch."""
        outside = np.ones(self.task.n_classes, bool)
        outside[new] = False
        return incoming[:, None] & outside[None]
