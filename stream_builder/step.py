"""Split and Step: the samples of one moment in time, with their labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from curate.core.errors import IncompatibleStream
from stream_builder.lazy_images import Encoded
from stream_builder.lazy_images import join as join_encoded

SPLITS = ("train", "val", "test")
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Split:
    """Samples in an order that has meaning.

    x: (N, ...) float16/float32 features, (N, H, W, 3) uint8 images or (N,) texts; anything that can be sliced, as
    `Encoded` can.
    y: (N,) int64 labels. ids: (N,) text. time: (N,) int64 seconds UTC, or None.
    """

    x: Any
    y: npt.NDArray[np.int64]
    ids: Array = field(default_factory=lambda: np.zeros(0, "U1"))
    time: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.y)

    def part(self, start: int, stop: int) -> Split:
        """Samples [start, stop); images that are not decoded yet stay so."""
        return Split(
            pick(self.x, slice(start, stop)),
            self.y[start:stop],
            self.ids[start:stop],
            None if self.time is None else self.time[start:stop],
        )

    def take(self, positions: Array) -> Split:
        """The samples at `positions`, in that order; images that are not decoded yet stay so."""
        return Split(
            pick(self.x, positions),
            self.y[positions],
            self.ids[positions],
            None if self.time is None else self.time[positions],
        )


def pick(x: Any, positions: Any) -> Any:
    """Samples of an array, or of images that are not decoded yet."""
    return x.select(positions) if isinstance(x, Encoded) else x[positions]


def join(splits: Sequence[Split]) -> Split:
    """Splits one after the other."""
    if len(splits) == 1:
        return splits[0]
    times = [s.time for s in splits]
    encoded = [s.x for s in splits if isinstance(s.x, Encoded)]
    return Split(
        join_encoded(encoded) if len(encoded) == len(splits) else np.concatenate([s.x for s in splits]),
        np.concatenate([s.y for s in splits]),
        np.concatenate([s.ids for s in splits]),
        np.concatenate(times) if all(t is not None for t in times) else None,  # type: ignore[arg-type]
    )


@dataclass(frozen=True)
class Step:
    """One time step. splits: any subset of "train", "val", "test". unlabelled: further samples of that time (N, ...),
    of which nobody said what they show, or None."""

    index: int
    name: str
    splits: Mapping[str, Split]
    unlabelled: Any = None

    def __getitem__(self, split: str) -> Split:
        """Raises IncompatibleStream where the step has no such split."""
        if split not in self.splits:
            raise IncompatibleStream(
                f"Step {self.name!r} has no {split} split.",
                f"It has {', '.join(self.splits) or 'none'}.",
                "Make the stream with one.",
            )
        return self.splits[split]

    def visible(self) -> Step:
        """What a learner may see: train and val, never test."""
        return replace(self, splits={k: v for k, v in self.splits.items() if k != "test"})

    def past(self) -> Step:
        """The whole step as training data, for protocols in which yesterday's test is today's training."""
        return replace(self, splits={"train": self.everything()})

    def everything(self) -> Split:
        """All samples of the step, split after split; in time order where times are known."""
        whole = join([self.splits[s] for s in SPLITS if s in self.splits])
        if whole.time is None:
            return whole
        return whole.take(np.argsort(whole.time, kind="stable"))
