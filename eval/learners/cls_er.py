"""CLS-ER: a plastic and a stable slow copy of the network teach it on stored samples [Arani et al. 2022]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field, NonNegativeFloat, NonNegativeInt

from driftline.eval.engine.linear import Net, Params, Rule, net_scores
from driftline.eval.learner import Array, Guide, Labels, Task
from driftline.eval.memory.dark import ON_STREAMS, Dark
from driftline.eval.training.sgd_learner import NetLearner

Share = Annotated[float, Field(gt=0, le=1)]


class Slow:
    """A copy whose weights follow those of a network: θ ← a θ + (1 - a) θ', a ≤ 1 - 1 / (t + 1) after the network's
    t-th update [the authors' code: NeurAI-Lab/CLS-ER, models/clser.py]."""

    def __init__(self, net: Net, decay: float, frequency: float) -> None:
        self.net, self.decay, self.frequency, self.updates = net.copy(), decay, frequency, 0

    def follow(self, net: Net) -> None:
        """Once."""
        decay = min(1 - 1 / (self.updates + 1), self.decay)
        for own, p in zip(self.net.params, net.params, strict=True):
            own.mul_(decay).add_(p, alpha=1 - decay)


class Consolidate(Rule):
    """Adds the cross-entropy of stored samples and λ times the mean squared distance to the scores of the copy that
    is surer of the right class [Arani et al. 2022, eq. 2-5]; then the copies follow."""

    def __init__(self, memory: Dark, plastic: Slow, stable: Slow, weight: float, rng: np.random.Generator) -> None:
        self.memory, self.slow, self.weight, self.rng = memory, (plastic, stable), weight, rng
        self.net: Any = None

    def gradient(self, net: Net, grads: Params, x: Any, y: Any) -> Params:
        import torch

        self.net = net
        if len(self.memory):
            past, labels, _ = self.memory.draw(len(y))
            of_each = [slow.net.scores(past).float() for slow in self.slow]
            rows = torch.arange(len(labels), device=labels.device)
            sure = [torch.softmax(scores, 1)[rows, labels] for scores in of_each]
            teacher = torch.where((sure[1] > sure[0])[:, None], of_each[1], of_each[0])
            off = 2 * self.weight * (net.scores(past).float() - teacher) / teacher.numel()
            replayed = zip(grads, net.data_gradient(past, labels), net.pulled(past, off), strict=True)
            grads = [(g + p) / 2 + q for g, p, q in replayed]  # one cross-entropy over both halves of the batch
        self.memory.add(x, y, y[:, None].float())
        return grads

    def moved(self, grads: Params, steps: Params) -> None:
        for slow in self.slow:
            slow.updates += 1
            if self.rng.random() < slow.frequency:
                slow.follow(self.net)


@dataclass
class ClsEr(NetLearner):
    """Experience replay with two averages of the weights as teachers; the stable one answers [Arani et al. 2022]."""

    memory: NonNegativeInt = 0
    """samples in all; 0: as many as the first step has (CLEAR: one bucket), 500 on streams of batches"""
    weight: NonNegativeFloat = 0.15
    """λ, weight of the teachers' scores [the authors' utils/best_args.py: 0.15 for CIFAR-10, 0.1 to 1.25 elsewhere]"""
    plastic_decay: Share = 0.99
    """decay of the plastic copy [the authors': 0.99 for runs of one epoch, 0.999 for 50]"""
    stable_decay: Share = 0.999
    """decay of the stable copy [the authors': 0.999]"""
    plastic_frequency: Share = 0.9
    """share of updates that the plastic copy follows [the default of the authors' models/clser.py]"""
    stable_frequency: Share = 0.7
    """share of updates that the stable copy follows [the default of the authors' models/clser.py]"""

    cost = 8 / 3  # two gradients, and a forward pass of each copy
    guide = Guide("replay", "Arani et al. 2022", "3 E n D C", "averages of weights over time, with replay")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        super().begin(task, rng)
        self.dark = Dark(self.memory or (ON_STREAMS if task.batch else 0), rng)
        self.plastic = Slow(self.head, self.plastic_decay, self.plastic_frequency)
        self.stable = Slow(self.head, self.stable_decay, self.stable_frequency)

    def rule(self) -> Rule:
        """What is added to plain SGD."""
        return Consolidate(self.dark, self.plastic, self.stable, self.weight, self.rng)

    def learn(self, x: Array, y: Labels) -> None:
        self.dark.limit = self.dark.limit or len(y)
        self.train(x, y, rule=self.rule())

    def on_correction(self) -> Rule:
        self.dark.limit = self.dark.limit or ON_STREAMS
        return self.rule()

    def scores(self, x: Array) -> Array:
        return net_scores(self.stable.net, self.inputs(x))
