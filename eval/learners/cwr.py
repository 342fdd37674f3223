"""CWR*: class weights are trained separately and averaged by how often a class was seen [Lomonaco et al. 2020]."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from driftline.eval.engine.deep import Deep
from driftline.eval.engine.linear import Net, Params, Rule, on, zeros
from driftline.eval.learner import Array, Guide, Labels, Needs, Task
from driftline.eval.training.sgd_learner import NetLearner


class Frozen(Rule):
    """No gradient below the output layer."""

    def gradient(self, net: Net, grads: Params, x: Any, y: Any) -> Params:
        """The data's gradient of the last two parameters; the others do not change, not even by weight decay."""
        return [None] * len(grads[:-2]) + grads[-2:]


@dataclass
class Cwr(NetLearner):
    """Consolidated weights cw, averaged over steps with weight √(past / current) per class (algorithm CWR*).

    The weights of a step's classes start from cw (a new class's from 0), those of all other classes from 0. Afterwards
    each weight of the step's classes, minus the mean over all of them, is merged into cw, and every class seen so far
    has its cw. Biases go on from step to step. The layers below the output layer are trained on the first step only.
    Steps that lack classes are treated as in Avalanche.
    """

    variant: Literal["paper", "reference"] = "paper"
    """`reference` does not count a class's first step, so that its second one replaces its weights, as in CLEAR's code
    (Avalanche, pull request 1008)"""

    needs = Needs(whole_steps="it consolidates after a whole step")
    guide = Guide("regularised", "Lomonaco et al. 2020", "E n D C", "classes that come in few steps only")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        super().begin(task, rng)
        self.past = np.zeros(task.n_classes)  # counted samples of each class
        self.known = np.zeros(task.n_classes, bool)
        (self.consolidated,) = zeros(self.head.params[-2:-1])

    def learn(self, x: Array, y: Labels) -> None:
        weights = self.head.params[-2]
        current = np.bincount(y, minlength=len(self.past)).astype(np.float64)
        seen = np.flatnonzero(current)
        rows = on(seen, self.head)
        weights.zero_()
        weights[rows] = self.consolidated[rows]
        below = self.known.any() and len(self.head.params) > 2
        if below and isinstance(self.head, Deep):
            self.head.frozen = True  # freezes statistics of batch normalisation, too
        self.train(x, y, rule=Frozen() if below else None)
        trained = weights[rows] - weights[rows].mean()
        ratio = np.sqrt(self.past[seen] / current[seen])[:, None]
        past = on(ratio.astype(np.float32), self.head)
        self.consolidated[rows] = (self.consolidated[rows] * past + trained) / (past + 1)
        self.past += current * (self.known if self.variant == "reference" else 1)
        self.known[seen] = True
        learned = on(np.flatnonzero(self.known), self.head)
        weights[learned] = self.consolidated[learned]
