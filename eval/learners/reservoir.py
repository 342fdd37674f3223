"""Training on a buffer of fixed size, kept by (biased) reservoir sampling [CLEAR, supplement 4]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from curate.core.errors import BadConfig
from eval.learner import Array, Labels, Task, check_variant
from eval.memory.buffers import biased_reservoir
from eval.training.sgd_learner import NetLearner


@dataclass
class Reservoir(NetLearner):
    """Trains on a buffer that CLEAR's biased reservoir keeps; larger alpha keeps more of the recent past.

    alpha: a number is a fixed α (1.0: plain reservoir; CLEAR tries 0.5, 1, 2, 5); "dynamic:c" is α = c · i / k, so that
    every new sample enters with probability c (1.0: the newest bucket alone). memory: k samples, 0 means as many as
    the first step has. start: "finetune" goes on from the weights at hand, "scratch" begins anew. variant: "reference"
    replaces the newest samples of the buffer, as CLEAR's code, which lacks the algorithm's shuffle.
    """

    needs_whole_steps = "it trains on its buffer after every step; er-online has memory and alpha"

    alpha: float | str = 1.0
    start: str = "finetune"
    memory: int = 0
    variant: str = "paper"

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """An empty buffer."""
        if self.start not in ("finetune", "scratch"):
            raise BadConfig(f"start is {self.start!r}.", "Expected finetune or scratch.")
        check_variant(self.variant)
        super().begin(task, rng)
        self.limit, self.seen = self.memory, 0
        self.x: Array = np.zeros((0, *task.x_shape), np.float32)
        self.y: Labels = np.zeros(0, np.int64)

    def fixed_alpha(self) -> float:
        """α for the bucket at hand. Raises BadConfig for anything but a number ≥ 0 or dynamic:NUMBER."""
        text = str(self.alpha)
        kind, _, number = text.rpartition(":")
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if value < 0 or kind not in ("", "dynamic"):
            raise BadConfig(f"alpha is {text!r}.", "Expected a number from 0, or dynamic:NUMBER, as in dynamic:0.5.")
        return value * self.seen / self.limit if kind else value

    def samples_trained(self, sizes: Sequence[int]) -> float:
        """Each step the memory."""
        return self.epochs * float(sum(min(self.memory or sizes[0], sum(sizes[: i + 1])) for i in range(len(sizes))))

    def learn(self, x: Array, y: Labels) -> None:
        """Update the buffer, then train on it."""
        self.limit = self.limit or len(y)
        self.seen += len(y)
        shuffle = self.variant == "paper"
        keep = biased_reservoir(len(self.y), len(y), self.seen, self.limit, self.fixed_alpha(), self.rng, shuffle)
        self.x = np.concatenate([self.x.astype(x.dtype), x])[keep]
        self.y = np.concatenate([self.y, y])[keep]
        if self.start == "scratch":
            self.reset()
        self.train(self.x, self.y)
