"""Joint training: all steps at once, the future included: an upper bound for learning step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from driftline.eval.learner import Guide, Needs
from driftline.eval.training.sgd_learner import NetLearner
from driftline.stream_builder.stream import Step


@dataclass
class Joint(NetLearner):
    """Trains once on the training data of all steps: an upper bound, as it sees every step before it is tested on any.

    Epochs as in CLEAR's code: epochs · steps // 3.
    """

    needs = Needs(whole_steps="it learns from all steps at once", future=True)
    guide = Guide("references", "", "E n D C", "an upper bound that sees the future")

    def samples_trained(self, sizes: Sequence[int]) -> float:
        return self.epochs * max(1, len(sizes) // 3) * float(sum(sizes))

    def learn_sequence(self, steps: Sequence[Step]) -> None:
        """One training run over everything, as long as a third of all steps one by one."""
        trains = [step["train"] for step in steps]
        factor = max(1, len(steps) // 3)
        longer = replace(self, epochs=self.epochs * factor, decay_after=self.decay_after * factor)
        vars(longer).update({k: v for k, v in vars(self).items() if k not in ("epochs", "decay_after")})
        longer.reset()
        longer.train([np.asarray(t.x) for t in trains], np.concatenate([t.y for t in trains]))
        self.head, self.length, self.gradient_steps = longer.head, longer.length, longer.gradient_steps
