"""What a learner on a time-ordered stream may learn from: everything so far, read where it lies and never copied."""

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
    """parts: samples of the steps, one after the other (arrays, memory-mapped or encoded). labels: (N,) int64 of all.
    start, seen: the newest batch is [start, seen), and nothing from `seen` on can be reached."""

    parts: Sequence[Any]
    labels: Labels
    start: int = 0
    seen: int = 0

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
            raise BadArray(
                f"Position {positions.max()} of a stream of which {self.seen} samples are past.",
                "Expected an earlier one.",
            )
        ends = np.cumsum([len(part) for part in self.parts])
        of = np.searchsorted(ends, positions, side="right")
        out: Any = None
        for number in np.unique(of).tolist():
            here = np.flatnonzero(of == number)
            rows = positions[here] - (ends[number - 1] if number else 0)
            run = bool(len(rows)) and rows[-1] - rows[0] + 1 == len(rows) and bool((np.diff(rows) == 1).all())
            taken = np.asarray(self.parts[number][rows[0] : rows[-1] + 1] if run else self.parts[number][rows])
            if len(here) == len(positions):
                return taken
            if out is None:
                out = np.empty((len(positions), *taken.shape[1:]), taken.dtype)
            out[here] = taken
        return np.asarray(self.parts[0][:0]) if out is None else out

    def take(self, positions: Any) -> tuple[Array, Labels]:
        """Samples and labels at `positions`, in their order."""
        return self.x(positions), self.labels[np.asarray(positions, np.int64)]

    def newest(self) -> tuple[Array, Labels]:
        """The newest batch."""
        return self.take(np.arange(self.start, self.seen))
