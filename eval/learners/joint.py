"""Joint training: all steps at once, the future included; what a stream would allow that is no stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from eval.training.sgd_learner import NetLearner
from stream_builder.stream import Step


@dataclass
class Joint(NetLearner):
    """Trains once on the training data of every step [CLEAR's code: epochs · steps // 3 of them]; an upper bound, not a
    competitor: it sees every step before it is tested on any. Where steps come one by one it trains anew on all so far.
    """

    needs_whole_steps = "it learns from all steps at once"

    sees_all = True

    def samples_trained(self, sizes: Sequence[int]) -> float:
        """Everything at once."""
        return self.epochs * max(1, len(sizes) // 3) * float(sum(sizes))

    def learn_sequence(self, steps: Sequence[Step]) -> None:
        """One training run over everything, as long as a third of the steps one by one."""
        trains = [step["train"] for step in steps]
        x, y = np.concatenate([t.x for t in trains]), np.concatenate([t.y for t in trains])
        longer = max(1, len(steps) // 3)
        once = replace(self, epochs=self.epochs * longer, decay_after=self.decay_after * longer)
        vars(once).update({k: v for k, v in vars(self).items() if k not in ("epochs", "decay_after")})
        once.reset()
        once.train(x, y)
        self.head, self.length, self.gradient_steps = once.head, once.length, once.gradient_steps
