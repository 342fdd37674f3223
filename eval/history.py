"""What a learner on a time-ordered stream may learn from: everything so far, and nothing that comes later.

`History` holds the whole stream and belongs to the protocol. A learner is handed a `Past`, which knows its history by a
number only: no attribute, and no array behind an array, leads to later samples or labels. `reveals` is the one order in
which protocols show labels that come later than their samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadArray, IncompatibleStream
from driftline.stream_builder.stream import Split, Stream

Array = Any
Labels = Any

_NUMBERS = count()
_OPEN: "WeakValueDictionary[int, History]" = WeakValueDictionary()


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

    def past(self, start: int, seen: int) -> "Past":
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


Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Reveals:
    """The labels of a stream of n samples whose samples come `batch` at a time: a moment."""

    n: int
    batch: int
    delay: int
    """moments between a sample and its label, at least"""
    order: Positions | None = None
    """(M,) positions of the labels that come before the stream ends, the first one first; None: all, in stream order"""
    ends: Positions | None = None
    """(T,) how many of them are shown when each moment ends; None: as `delay` says"""
    lag: int = 0
    """samples between a sample and its label, the median of those that come"""

    def shown(self, moment: int) -> int:
        """How many labels of `order` are shown when a moment ends; 0 before the first one."""
        if self.ends is None:
            return min(self.n, max(0, (moment + 1 - self.delay) * self.batch))
        return int(self.ends[moment]) if moment >= 0 else 0

    def newly(self, moment: int) -> Sequence[int]:
        """Positions of the samples whose labels are shown when a moment ends."""
        start, seen = self.shown(moment - 1), self.shown(moment)
        return range(start, seen) if self.order is None else self.order[start:seen].tolist()

    @property
    def first(self) -> int:
        """The moment at whose end the first label is shown."""
        return self.delay if self.ends is None else int((self.ends == 0).sum())

    @property
    def idle(self) -> int:
        """Later moments at whose end no label is shown."""
        return 0 if self.ends is None else int((np.diff(self.ends[self.first :]) == 0).sum())


def reveals(splits: Sequence[Split], batch: int, delay: int = 0) -> Reveals:
    """When the labels of a stream are shown, whose samples are those of `splits` in order.

    A label is shown when a moment ends: `delay` moments after that of its sample, and not before the newest sample has
    reached its label_time. Those of one moment are in the order of label_time. A label that comes after the last
    sample, or never, is never shown. Without label_time, labels come with their samples.
    """
    n = sum(map(len, splits))
    if not splits or any(split.label_time is None or split.time is None for split in splits):
        return Reveals(n, batch, delay, lag=delay * batch)
    time, late = (np.concatenate([getattr(split, name) for split in splits]) for name in ("time", "label_time"))
    of_sample = np.arange(n) // batch
    moments = -(-n // batch)
    now = np.maximum.accumulate(time)[np.minimum(np.arange(1, moments + 1) * batch, n) - 1]
    due = np.maximum(of_sample + delay, np.searchsorted(now, late))
    come = np.flatnonzero(due < moments)
    order = come[np.lexsort((late[come], due[come]))]
    ends = np.searchsorted(due[order], np.arange(moments), side="right")
    lag = int(np.median((due - of_sample)[come])) * batch if len(come) else 0
    return Reveals(n, batch, delay, order, ends, lag)


def has_label_time(stream: Stream) -> bool:
    """Whether any labels of a stream have a time of their own."""
    return any(split.label_time is not None for step in stream.steps for split in step.splits.values())


def check_label_time(stream: Stream) -> None:
    """Raise IncompatibleStream for training samples some of which have no time or label_time, where others have."""
    trains = [step.splits["train"] for step in stream.steps if "train" in step.splits]
    late = [train.label_time is not None for train in trains]
    if any(late) and not all(has and train.time is not None for has, train in zip(late, trains, strict=True)):
        problem = f"Some training samples of {stream.name!r} have a label_time, and some have none or no time."
        raise IncompatibleStream(problem, "Expected both of every one.")


def label_time_note(name: str, used: bool, stream: Stream) -> str:
    """What the record of a run by the protocol `name` says of a stream with label_time; "" without it."""
    if not has_label_time(stream):
        return ""
    return "Labels come in the order of label_time." if used else f"label_time is not used by {name}."
