"""Samplers: which past samples an online learner trains on, as positions in the stream, so that none is stored twice.

A new sampler is one class here and one line in `SAMPLERS`, or an entry point of another package in the group
`driftline.samplers`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator

from driftline.curate.core.registry import Registry
from driftline.eval.history import Past
from driftline.eval.memory.buffers import biased_reservoir

Positions = npt.NDArray[np.int64]


@dataclass
class Sampler(ABC):
    """Keeps positions of past samples and draws from them."""

    rng: np.random.Generator
    """generator of everything random"""
    memory: int = 0
    """samples in memory; 0: all (unlimited storage, as in the paper)"""
    alpha: float = 1.0
    """α of the biased reservoir that keeps a limited memory; 1 keeps a uniform sample"""
    positions: Positions = field(default_factory=lambda: np.zeros(0, np.int64))
    """positions in a limited memory"""

    uses: ClassVar[Sequence[str]] = ("memory", "alpha")
    """those of the two that change its draws"""

    def grow(self, past: Past) -> None:
        """Add the newest batch."""
        if self.memory:
            new = past.seen - past.start
            keep = biased_reservoir(len(self.positions), new, past.seen, self.memory, self.alpha, self.rng)
            self.positions = np.concatenate([self.positions, np.arange(past.start, past.seen)])[keep]

    def stored(self, past: Past) -> int:
        """Number of samples in memory."""
        return len(self.positions) if self.memory else past.seen

    def uniform(self, past: Past, n: int) -> Positions:
        """n samples of the memory without repetition; all of them if it has fewer."""
        among: int | Positions = self.positions if self.memory else past.seen
        return np.asarray(self.rng.choice(among, min(n, self.stored(past)), replace=False), np.int64)

    @abstractmethod
    def draw(self, past: Past, n: int) -> Positions:
        """Up to n positions to train on."""


@dataclass
class Fifo(Sampler):
    """The last n samples, oldest first: a queue [EvalOCL]."""

    longest: int = 0
    """samples of the longest draw"""

    uses = ()

    def grow(self, past: Past) -> None:
        """Nothing is stored."""

    def stored(self, past: Past) -> int:
        """Samples of the longest draw, at least those of the newest batch."""
        return min(past.seen, max(past.seen - past.start, self.longest))

    def draw(self, past: Past, n: int) -> Positions:
        """[seen − n, seen)."""
        self.longest = max(self.longest, n)
        return np.arange(max(0, past.seen - n), past.seen)


class Uniform(Sampler):
    """Uniformly from the memory, including the newest batch, without repetition [EvalOCL]."""

    def draw(self, past: Past, n: int) -> Positions:
        return self.uniform(past, n)


class Mixed(Sampler):
    """Half the newest samples, half uniformly from the memory [EvalOCL]."""

    def draw(self, past: Past, n: int) -> Positions:
        newest = np.arange(max(0, past.seen - (n + 1) // 2), past.seen)
        return np.concatenate([newest, self.uniform(past, n - len(newest))])


@dataclass
class Balanced(Sampler):
    """A class uniformly from those seen, then one of its samples, with repetition."""

    members: dict[int, list[int]] = field(default_factory=dict)
    """class → positions in memory"""

    uses = ("memory",)

    def grow(self, past: Past) -> None:
        """Add the newest batch; above the limit, remove random samples of the largest class."""
        newest = np.arange(past.start, past.seen)
        for position, label in zip(newest.tolist(), past.y(newest).tolist(), strict=True):
            self.members.setdefault(label, []).append(position)
        for _ in range(self.stored(past) - self.memory if self.memory else 0):
            largest = max(self.members.values(), key=len)
            largest.pop(int(self.rng.integers(len(largest))))

    def stored(self, past: Past) -> int:
        return sum(len(positions) for positions in self.members.values())

    def draw(self, past: Past, n: int) -> Positions:
        classes = [label for label, positions in self.members.items() if positions]
        chosen = [self.members[classes[i]] for i in self.rng.integers(len(classes), size=n)]
        return np.array([positions[int(self.rng.integers(len(positions)))] for positions in chosen], np.int64)


SAMPLERS = Registry(
    "sampler",
    {
        "fifo": "driftline.eval.memory.samplers:Fifo",
        "uniform": "driftline.eval.memory.samplers:Uniform",
        "mixed": "driftline.eval.memory.samplers:Mixed",
        "balanced": "driftline.eval.memory.samplers:Balanced",
    },
    group="samplers",
    base="driftline.eval.memory.samplers:Sampler",
)


def _registered(name: str) -> str:
    SAMPLERS.resolve(name)
    return name


SamplerName = Annotated[str, AfterValidator(_registered)]
"""a setting: the name of a sampler, or package.module:Name"""
