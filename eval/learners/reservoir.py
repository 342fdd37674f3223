"""Training on a buffer of fixed size, kept by (biased) reservoir sampling [CLEAR, supplement 4]."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, NonNegativeInt

from driftline.eval.learner import Array, Guide, Labels, Needs, Task
from driftline.eval.memory.buffers import biased_reservoir
from driftline.eval.training.sgd_learner import NetLearner


def parts_of(alpha: float | str) -> tuple[bool, float]:
    """A setting `alpha` → whether it is dynamic, and its number. Raises ValueError for anything else.

    >>> parts_of(5), parts_of("dynamic:0.5")
    ((False, 5.0), (True, 0.5))
    """
    kind, _, number = str(alpha).rpartition(":")
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf") or kind not in ("", "dynamic"):
        raise ValueError("a number from 0, or dynamic:NUMBER, as in dynamic:0.5")
    return kind == "dynamic", value


def _checked(alpha: float | str) -> float | str:
    parts_of(alpha)
    return alpha


@dataclass
class Reservoir(NetLearner):
    """Trains on a buffer that CLEAR's biased reservoir keeps; larger alpha keeps more of the recent past."""

    alpha: Annotated[float | str, AfterValidator(_checked)] = 1.0
    """a number is a fixed α (1.0: plain reservoir; CLEAR tries 0.5, 1, 2, 5); `dynamic:c` is α = c · i / k, so that
    every new sample enters with probability c (1.0: the newest bucket only)"""
    start: Literal["finetune", "scratch"] = "finetune"
    """whether training continues from the current weights, or starts from random ones"""
    memory: NonNegativeInt = 0
    """k, samples in the buffer; 0: as many as the first step has"""
    variant: Literal["paper", "reference"] = "paper"
    """`reference` replaces the newest samples of the buffer, as CLEAR's code does, which lacks the algorithm's
    shuffle"""

    needs = Needs(whole_steps="it trains on its buffer after every step; er-online has memory and alpha")
    guide = Guide("replay", "CLEAR, supplement 4", "E M D C", "a memory that prefers recent samples (alpha)")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        super().begin(task, rng)
        self.limit, self.seen = self.memory, 0
        self.x: Array = np.zeros((0, *task.x_shape), np.float32)
        self.y: Labels = np.zeros(0, np.int64)

    def samples_trained(self, sizes: Sequence[int]) -> float:
        return self.epochs * float(sum(min(self.memory or sizes[0], sum(sizes[: i + 1])) for i in range(len(sizes))))

    def learn(self, x: Array, y: Labels) -> None:
        self.limit = self.limit or len(y)
        self.seen += len(y)
        dynamic, value = parts_of(self.alpha)
        alpha, shuffle = value * self.seen / self.limit if dynamic else value, self.variant == "paper"
        keep = biased_reservoir(len(self.y), len(y), self.seen, self.limit, alpha, self.rng, shuffle=shuffle)
        self.x = np.concatenate([self.x.astype(x.dtype, copy=False), x])[keep]
        self.y = np.concatenate([self.y, y])[keep]
        if self.start == "scratch":
            self.reset()
        self.train(self.x, self.y)
