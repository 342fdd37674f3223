"""What a learner on a time-ordered stream may learn from: everything so far, read in place, without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from curate.core.errors import BadArray
from stream_builder.stream import Split

Array = Any
Labels = Any


@dataclass(frozen=True)
class Past:
    """Samples of a stream up to a position; later ones cannot be read."""

    parts: Sequence[Any]
    """samples of the steps, in order: arrays, memory-mapped or encoded"""
    labels: Labels
    """(N,) int64, of all samples"""
    start: int = 0
    """position of the newest batch"""
    seen: int = 0
    """end of the newest batch; samples from here on cannot be read"""

    @classmethod
    def of(cls, splits: Sequence[Split]) -> Past:
        """All of some splits, none of it seen yet."""
        return cls([s.x for s in splits], np.concatenate([np.asarray(s.y, np.int64) for s in splits]))

    def at(self, start: int, seen: int) -> Past:
        """The same stream at another time."""
        return Past(self.parts, self.labels, start, seen)

    def __len__(self) -> int:
        return self.seen

    def x(self, positions: Any) -> Array:
        """Samples at `positions`, in their order. Raises BadArray for one that is not past."""
        positions = np.asarray(positions, np.int64)
        if len(positions) and not 0 <= positions.min() <= positions.max() < self.seen:
            problem = f"Position {positions.max()} of a stream of which {self.seen} samples are past."
            raise BadArray(problem, "Expected an earlier one.")
        ends = np.cumsum([len(part) for part in self.parts])
        numbers = np.searchsorted(ends, positions, side="right")
        out: Any = None
        for number in np.unique(numbers).tolist():
            inside = np.flatnonzero(numbers == number)
            rows = positions[inside] - (ends[number - 1] if number else 0)
            run = bool(len(rows)) and rows[-1] - rows[0] + 1 == len(rows) and bool((np.diff(rows) == 1).all())
            taken = np.asarray(self.parts[number][rows[0] : rows[-1] + 1] if run else self.parts[number][rows])
            if len(inside) == len(positions):
                return taken
            if out is None:
                out = np.empty((len(positions), *taken.shape[1:]), taken.dtype)
            out[inside] = taken
        return np.asarray(self.parts[0][:0]) if out is None else out

    def take(self, positions: Any) -> tuple[Array, Labels]:
        """Samples and labels at `positions`, in their order."""
        return self.x(positions), self.labels[np.asarray(positions, np.int64)]

    def newest(self) -> tuple[Array, Labels]:
        """The newest batch."""
        return self.take(np.arange(self.start, self.seen))
