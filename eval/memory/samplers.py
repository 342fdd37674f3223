"""Which samples of the past an online learner trains on: positions in the stream, so that nothing is stored twice.

A new sampler is one class here and one line in `SAMPLERS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from curate.core.registry import Registry
from eval.history import Past
from eval.memory.buffers import biased_reservoir

Positions = npt.NDArray[np.int64]


@dataclass
class Sampler(ABC):
    """memory: samples it may keep, 0 for all (unlimited storage, as in the paper). alpha: of the biased reservoir that
    keeps them where there is a limit; 1 keeps a uniform sample."""

    rng: np.random.Generator
    memory: int = 0
    alpha: float = 1.0
    held: Positions = field(default_factory=lambda: np.zeros(0, np.int64))

    def grow(self, past: Past) -> None:
        """The newest batch has come."""
        if self.memory:
            new = past.seen - past.start
            keep = biased_reservoir(len(self.held), new, past.seen, self.memory, self.alpha, self.rng)
            self.held = np.concatenate([self.held, np.arange(past.start, past.seen)])[keep]

    def kept(self, past: Past) -> int:
        """Samples in storage."""
        return len(self.held) if self.memory else past.seen

    def uniform(self, past: Past, n: int) -> Positions:
        """n of what is kept, none twice; all of it where that is less."""
        among: int | Positions = self.held if self.memory else past.seen
        return np.asarray(self.rng.choice(among, min(n, self.kept(past)), replace=False), np.int64)

    @abstractmethod
    def draw(self, past: Past, n: int) -> Positions:
        """Up to n positions to train on."""


@dataclass
class Fifo(Sampler):
    """The last n samples, oldest first: a queue that keeps nothing else [EvalOCL]."""

    def grow(self, past: Past) -> None:
        """Nothing to do."""

    def kept(self, past: Past) -> int:
        """The newest batch."""
        return past.seen - past.start

    def draw(self, past: Past, n: int) -> Positions:
        """[seen − n, seen)."""
        return np.arange(max(0, past.seen - n), past.seen)


class Uniform(Sampler):
    """Uniformly from all that is kept, the newest batch included, without repetition [EvalOCL]."""

    def draw(self, past: Past, n: int) -> Positions:
        """See the class."""
        return self.uniform(past, n)


class Mixed(Sampler):
    """Half the newest samples, half uniformly from all that is kept [EvalOCL]."""

    def draw(self, past: Past, n: int) -> Positions:
        """The newest first."""
        newest = np.arange(max(0, past.seen - (n + 1) // 2), past.seen)
        return np.concatenate([newest, self.uniform(past, n - len(newest))])


@dataclass
class Balanced(Sampler):
    """A class uniformly from those seen, then one of its samples; samples may repeat."""

    members: dict[int, list[int]] = field(default_factory=dict)

    def grow(self, past: Past) -> None:
        """All come in; where there is a limit the largest class gives up one of its samples for each too many."""
        for position in range(past.start, past.seen):
            self.members.setdefault(int(past.labels[position]), []).append(position)
        for _ in range(self.kept(past) - self.memory if self.memory else 0):
            largest = max(self.members.values(), key=len)
            largest.pop(int(self.rng.integers(len(largest))))

    def kept(self, past: Past) -> int:
        """Samples in storage."""
        return sum(len(mine) for mine in self.members.values())

    def draw(self, past: Past, n: int) -> Positions:
        """See the class."""
        classes = [label for label, mine in self.members.items() if mine]
        chosen = [self.members[classes[i]] for i in self.rng.integers(len(classes), size=n)]
        return np.array([mine[int(self.rng.integers(len(mine)))] for mine in chosen], np.int64)


SAMPLERS = Registry(
    "sampler",
    {
        "fifo": "eval.memory.samplers:Fifo",
        "uniform": "eval.memory.samplers:Uniform",
        "mixed": "eval.memory.samplers:Mixed",
        "balanced": "eval.memory.samplers:Balanced",
    },
)
