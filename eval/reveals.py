"""When labels are shown: the one order in which protocols reveal labels that come later than their samples."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import IncompatibleStream
from driftline.stream_builder.stream import Split, Stream

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
        raise IncompatibleStream(
            f"Some training samples of {stream.name!r} have a label_time, and some have none or no time.",
            "Expected both of every one.",
        )


def label_time_note(name: str, used: bool, stream: Stream) -> str:
    """What the record of a run by the protocol `name` says of a stream with label_time; "" without it."""
    if not has_label_time(stream):
        return ""
    return "Labels come in the order of label_time." if used else f"label_time is not used by {name}."
