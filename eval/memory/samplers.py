"""Which past samples a learner keeps, and which it trains on, as positions in the stream: none is stored twice.

A new sampler is one class here and one line in `SAMPLERS`, or an entry point of another package in the group
`driftline.samplers`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator

from driftline.curate.core.late import torch
from driftline.curate.core.registry import Registry
from driftline.eval.history import Past
from driftline.eval.learner import Array, Labels

Share = tuple[Array, Labels]  # the samples of one past step in memory, in random order


def balanced(shares: list[Share], x: Array, y: Labels, limit: int, rng: np.random.Generator) -> list[Share]:
    """Every step seen so far has an equal share of `limit` samples, a random subset of its share before.

    Copies: a part of an array would hold all of it.
    """
    order = rng.permutation(len(y))
    share, more = divmod(limit, len(shares) + 1)
    past = [(a[: share + (i < more)].copy(), b[: share + (i < more)].copy()) for i, (a, b) in enumerate(shares)]
    return [*past, (np.asarray(x)[order[:share]], np.asarray(y)[order[:share]])]


def biased_reservoir(
    size: int, new: int, seen: int, limit: int, alpha: float, rng: np.random.Generator, shuffle: bool = True
) -> Array:
    """One bucket of CLEAR's biased reservoir sampling [CLEAR, supplement 4, algorithm 1].

    size: samples in the buffer. new: samples of the bucket. seen: samples of the stream so far, this bucket included.
    limit: k. alpha: α. shuffle: False as in CLEAR's code: accepted samples replace the newest ones, so that half of the
    first bucket stays forever (α = 1). Returns positions in "buffer, then bucket" (size + new): the buffer after this
    bucket. A bucket that would replace more than the whole buffer replaces all of it, by a random part of the accepted
    samples (the algorithm as printed would overflow).
    """
    fill = min(limit - size, new)
    buffer = np.arange(size + fill)
    candidates = np.arange(size + fill, size + new)
    accepted = candidates[rng.random(len(candidates)) <= alpha * limit / seen]
    accepted = rng.permutation(accepted)[:limit]
    stays = rng.permutation(buffer)[len(accepted) :] if shuffle else buffer[: len(buffer) - len(accepted)]
    return np.concatenate([stays, accepted])


def class_reservoirs(labels: Labels, weight: Array, limit: int) -> Array:
    """For every class an equal share of `limit` samples, those of the highest weight: with one random weight per
    sample, a uniform sample of all samples of the class so far [Avalanche's class-balanced buffer].

    labels, weight: (N,) of "buffer, then new samples". Returns the positions in the buffer afterwards.
    """
    classes = np.unique(labels)
    share, more = divmod(limit, len(classes))
    chosen = []
    for i, label in enumerate(classes.tolist()):
        members = np.flatnonzero(labels == label)
        chosen.append(members[np.argsort(-weight[members], kind="stable")[: share + (i < more)]])
    return np.sort(np.concatenate(chosen))


def greedy_balanced(labels: Labels, in_buffer: Array, limit: int, rng: np.random.Generator) -> Array:
    """GDumb's greedy balancing sampler [Prabhu et al. 2020, algorithm 1].

    labels: of "buffer, then new samples in order". in_buffer: positions in the buffer now. A new sample enters if its
    class has fewer than limit / classes seen; a full buffer drops a random sample of its largest class. Returns the
    positions in the buffer afterwards.
    """
    inside: dict[int, list[int]] = {}
    for position in in_buffer.tolist():
        inside.setdefault(int(labels[position]), []).append(position)
    total = len(in_buffer)
    for position in range(len(in_buffer), len(labels)):
        members = inside.setdefault(int(labels[position]), [])
        if len(members) >= limit / len(inside):
            continue
        if total >= limit:
            largest = max(inside.values(), key=len)
            largest.pop(int(rng.integers(len(largest))))
            total -= 1
        members.append(position)
        total += 1
    return np.array(sorted(p for positions in inside.values() for p in positions), np.int64)


ON_STREAMS = 500  # samples in memory where a step is a small batch [Buzzega et al. 2020, table 2: 200, 500, 5,120]


class Dark:
    """Every sample that was ever added is in memory with the same probability [Vitter 1985, algorithm R]."""

    def __init__(self, limit: int, rng: np.random.Generator) -> None:
        self.limit, self.rng, self.seen = limit, rng, 0
        self.x: Any = None
        self.y: Any = None
        self.scores: Any = None

    def __len__(self) -> int:
        return min(self.seen, self.limit)

    def draw(self, n: int) -> tuple[Any, Any, Any]:
        """Up to n different samples: x, labels, scores."""
        rows = self.rng.choice(len(self), min(n, len(self)), replace=False)
        at = torch.from_numpy(np.asarray(rows, np.int64)).to(self.y.device)
        return self.x[at], self.y[at], self.scores[at]

    def add(self, x: Any, y: Any, scores: Any) -> None:
        """Tensors x (n, ...), y (n,), scores (n, C), one after the other."""
        if not self.limit:
            return
        if self.x is None:
            self.x, self.y, self.scores = (t.new_zeros((self.limit, *t.shape[1:])) for t in (x, y, scores))
        order = self.seen + np.arange(len(y))
        places = np.where(order < self.limit, order, (self.rng.random(len(y)) * (order + 1)).astype(np.int64))
        self.seen += len(y)
        last = {int(place): row for row, place in enumerate(places) if place < self.limit}  # the later one stays
        if last:
            to, of = (torch.tensor(list(part), device=y.device) for part in (last.keys(), last.values()))
            self.x[to], self.y[to], self.scores[to] = x[of].to(self.x.dtype), y[of], scores[of]  # corrections: float32


Positions = npt.NDArray[np.int64]


@dataclass
class Sampler(ABC):
    """Keeps positions of past samples and draws from them."""

    rng: np.random.Generator
    memory: int = 0
    """samples in memory; 0: all (unlimited storage, as in the paper)"""
    alpha: float = 1.0
    """α of the biased reservoir that keeps a limited memory; 1 keeps a uniform sample"""
    positions: Positions = field(default_factory=lambda: np.zeros(0, np.int64))

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
    __name__,
    {name.lower(): f":{name}" for name in ("Fifo", "Uniform", "Mixed", "Balanced")},
    group="samplers",
    base=f"{__name__}:Sampler",
)


def _registered(name: str) -> str:
    SAMPLERS.resolve(name)
    return name


SamplerName = Annotated[str, AfterValidator(_registered)]
"""a setting: the name of a sampler, or package.module:Name"""
