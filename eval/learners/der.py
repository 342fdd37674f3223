"""Dark experience replay: stored samples must keep the scores that they had when they were stored [Buzzega et al.
2020]."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import NonNegativeFloat, NonNegativeInt

from driftline.eval.engine.linear import Net, Params, Rule
from driftline.eval.learner import Array, Guide, Labels, Task
from driftline.eval.memory.buffers import ON_STREAMS, Dark
from driftline.eval.training.sgd_learner import NetLearner


class Remember(Rule):
    """Adds α times the gradient of the mean squared distance to stored scores, mean over samples and classes, and β
    times that of the cross-entropy of stored labels of another draw; then stores the batch with its scores from before
    the update [alg. 1 and 2; the authors' code: aimagelab/mammoth, models/der.py and derpp.py]."""

    def __init__(self, memory: Dark, alpha: float, beta: float) -> None:
        self.memory, self.alpha, self.beta = memory, alpha, beta

    def gradient(self, net: Net, grads: Params, x: Any, y: Any) -> Params:
        scores = net.scores(x).detach().float()
        if len(self.memory):
            past, _, stored = self.memory.draw(len(y))
            off = 2 * self.alpha * (net.scores(past).float() - stored) / stored.numel()
            grads = [g + p for g, p in zip(grads, net.pulled(past, off), strict=True)]
            if self.beta:
                past, labels, _ = self.memory.draw(len(y))
                grads = [g + self.beta * p for g, p in zip(grads, net.data_gradient(past, labels), strict=True)]
        self.memory.add(x, y, scores)
        return grads


@dataclass
class Der(NetLearner):
    """Finetuning with a reservoir of samples and their scores, which are imitated [Buzzega et al. 2020, alg. 1]."""

    memory: NonNegativeInt = 0
    """samples in all; 0: as many as the first step has (CLEAR: one bucket), 500 on streams of batches"""
    alpha: NonNegativeFloat = 0.5
    """α, weight of stored scores [the authors' utils/best_args.py: 0.1 to 1]"""

    beta = 0.0  # DER has no stored labels
    cost = 2.0  # gradients on the data and on the memory
    guide = Guide("replay", "Buzzega et al. 2020", "2 E n D C", "a memory of fixed size, steps without borders")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        super().begin(task, rng)
        self.dark = Dark(self.memory or (ON_STREAMS if task.batch else 0), rng)

    def rule(self) -> Rule:
        """What is added to plain SGD."""
        return Remember(self.dark, self.alpha, self.beta)

    def learn(self, x: Array, y: Labels) -> None:
        self.dark.limit = self.dark.limit or len(y)
        self.train(x, y, rule=self.rule())

    def on_correction(self) -> Rule:
        self.dark.limit = self.dark.limit or ON_STREAMS
        return self.rule()


@dataclass
class DerPlusPlus(Der):
    """DER that also replays stored labels [Buzzega et al. 2020, alg. 2]."""

    beta: NonNegativeFloat = 0.5
    """β, weight of stored labels [the authors' utils/best_args.py: 0.5 to 1]"""

    cost = 3.0
    guide = Guide("replay", "Buzzega et al. 2020", "3 E n D C", "as der, a stronger row for one more pass")
