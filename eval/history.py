"""What a learner on a time-ordered stream may learn from: everything so far, and nothing that comes later.

`History` holds the whole stream and belongs to the protocol. A learner is handed a `Past`, which knows its history by a
number only: no attribute, and no array behind an array, leads to later samples or labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from driftline.curate.core.errors import BadArray
from driftline.stream_builder.stream import Split

Array = Any
Labels = Any

_NUMBERS = count()
_OPEN: WeakValueDictionary[int, History] = WeakValueDictionary()


class History:
    """All samples of some splits, in order; only the protocol has it. order: positions, for another order or a part."""

    def __init__(self, splits: Sequence[Split], order: Any = None) -> None:
        self.order = order
        self.parts = [s.x for s in splits]
        """samples of the splits: arrays, memory-mapped or encoded"""
        labels = np.concatenate([np.asarray(s.y, np.int64) for s in splits])
        self.labels: Labels = labels if order is None else labels[order]
        """(N,) int64"""
        self.number = next(_NUMBERS)
        _OPEN[self.number] = self

    def __len__(self) -> int:
        return len(self.labels)

    def past(self, start: int, seen: int) -> Past:
        """The view of a learner to which samples [start, seen) come as the newest batch."""
        return Past(start, seen, self.number)

    def x(self, positions: Any) -> Array:
        """A copy of the samples at `positions`, in their order."""
        positions = np.asarray(positions, np.int64)
        positions = positions if self.order is None else self.order[positions]
        ends = np.cumsum([len(part) for part in self.parts])
        numbers = np.searchsorted(ends, positions, side="right")
        out: Any = None
        for number in np.unique(numbers).tolist():
            inside = np.flatnonzero(numbers == number)
            rows = positions[inside] - (ends[number - 1] if number else 0)
            run = bool(len(rows)) and rows[-1] - rows[0] + 1 == len(rows) and bool((np.diff(rows) == 1).all())
            taken = np.array(self.parts[number][rows[0] : rows[-1] + 1] if run else self.parts[number][rows])
            if len(inside) == len(positions):
                return taken
            if out is None:
                out = np.empty((len(positions), *taken.shape[1:]), taken.dtype)
            out[inside] = taken
        return np.array(self.parts[0][:0]) if out is None else out


@dataclass(frozen=True)
class Past:
    """Samples of a stream up to a position. It hands out copies; it can be read until the run ends."""

    start: int
    """position of the newest batch"""
    seen: int
    """end of the newest batch; samples from here on cannot be read"""
    number: int
    """of the history"""

    def __len__(self) -> int:
        return self.seen

    def x(self, positions: Any) -> Array:
        """Samples at `positions`, in their order. Raises BadArray for one that is not past."""
        return self._history(positions).x(positions)

    def y(self, positions: Any) -> Labels:
        """(n,) int64 labels at `positions`. Raises BadArray for one that is not past."""
        return self._history(positions).labels[np.asarray(positions, np.int64)]

    def take(self, positions: Any) -> tuple[Array, Labels]:
        """Samples and labels at `positions`, in their order."""
        return self.x(positions), self.y(positions)

    def newest(self) -> tuple[Array, Labels]:
        """The newest batch."""
        return self.take(np.arange(self.start, self.seen))

    def _history(self, positions: Any) -> History:
        """The history, if all positions are past."""
        positions = np.asarray(positions, np.int64)
        if len(positions) and not 0 <= positions.min() <= positions.max() < self.seen:
            problem = f"Position {positions.max()} of a stream of which {self.seen} samples are past."
            raise BadArray(problem, "Expected an earlier one.")
        history = _OPEN.get(self.number)
        if history is None:
            raise BadArray("The stream of this past is over.", "Expected a read before the end of its run.")
        return history
