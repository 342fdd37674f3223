"""Split and Step: the labelled samples of one time step, and what their arrays must be for learners."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadArray, IncompatibleStream
from driftline.curate.core.seeding import tie_ranks
from driftline.stream_builder.lazy_images import LazyImages
from driftline.stream_builder.lazy_images import join as join_images

SPLITS = ("train", "val", "test")
OPTIONAL = ("time", "group", "test_in", "label_time")  # further columns of a split, which a source may lack
NEVER = np.iinfo(np.int64).max  # label_time of a label that never comes
CALENDAR = (-62_135_596_800, 253_402_300_799)  # seconds of the years 1 to 9999, which a date can show
Array = npt.NDArray[Any]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class Split:
    """Samples in a meaningful order."""

    x: Any
    """(N, ...) float16/float32 features, (N, H, W, 3) uint8 images or (N,) texts; an array or `LazyImages`"""
    y: npt.NDArray[np.int64]
    """(N,) labels"""
    ids: Array = field(default_factory=lambda: np.zeros(0, "U1"))
    """(N,) strings; default: positions"""
    time: npt.NDArray[np.int64] | None = None
    """(N,) seconds UTC, or None"""
    group: npt.NDArray[np.int64] | None = None
    """(N,) samples with the same number share an uploader or are near-duplicates, in all steps; None: not known"""
    test_in: npt.NDArray[np.bool_] | None = None
    """(N, K) True where a sample is a test sample of the k-th of K published splits; None: there is one split"""
    label_time: npt.NDArray[np.int64] | None = None
    """(N,) seconds UTC when the label comes, `NEVER` if it never does; None: it comes with the sample"""

    position: npt.NDArray[np.int64] | None = None
    """(N,) place in the whole stream, int32 or int64; set by an evaluation, never stored"""

    def __post_init__(self) -> None:
        if len(self.y) and not len(self.ids):
            object.__setattr__(self, "ids", np.arange(len(self.y)).astype(np.str_))

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        return f"<Split of {len(self):,} samples {tuple(self.x.shape[1:])}>"

    def part(self, start: int, stop: int) -> "Split":
        """Samples [start, stop), as views; lazy images are not decoded."""
        return self.take(slice(start, stop))

    def take(self, positions: Array | slice) -> "Split":
        """The samples at `positions`, in that order; lazy images are not decoded."""
        columns = {name: column[positions] for name, column in self._carried().items()}
        return Split(pick(self.x, positions), self.y[positions], self.ids[positions], **columns)

    def columns(self) -> dict[str, Array]:
        """The optional columns that the split has, by name."""
        named = ((name, getattr(self, name)) for name in OPTIONAL)
        return {name: column for name, column in named if column is not None}

    def _carried(self) -> dict[str, Array]:
        """The same, and the position."""
        return self.columns() | ({} if self.position is None else {"position": self.position})


def pick(x: Any, positions: Any) -> Any:
    """The samples at `positions` of an array or of lazy images, which are not decoded."""
    return x.select(positions) if isinstance(x, LazyImages) else x[positions]


def join(splits: Sequence[Split]) -> Split:
    """Concatenate splits. Lazy images stay lazy if all splits have them; so is it with times and groups."""
    if len(splits) == 1:
        return splits[0]
    columns = [s._carried() for s in splits]
    lazy = [s.x for s in splits if isinstance(s.x, LazyImages)]
    return Split(
        join_images(lazy) if len(lazy) == len(splits) else np.concatenate([s.x for s in splits]),
        np.concatenate([s.y for s in splits]),
        np.concatenate([s.ids for s in splits]),
        **{
            name: np.concatenate([c[name] for c in columns])
            for name in (*OPTIONAL, "position")
            if all(name in c for c in columns)
        },
    )


@dataclass(frozen=True, repr=False)
class Step:
    """One time step."""

    index: int
    """position in the stream, from 0"""
    name: str
    """unique in the stream"""
    splits: Mapping[str, Split]
    """any subset of train, val and test"""
    unlabelled: Any = None
    """further samples of this step without labels (N, ...), or None"""

    def __getitem__(self, split: str) -> Split:
        """Raises IncompatibleStream if the step does not have this split."""
        if split not in self.splits:
            raise IncompatibleStream(
                f"Step {self.name!r} has no {split} split.",
                f"It has {', '.join(self.splits) or 'none'}.",
                "Create the stream with one.",
            )
        return self.splits[split]

    def __repr__(self) -> str:
        return f"<Step {self.name!r}: {', '.join(f'{name} {len(split):,}' for name, split in self.splits.items())}>"

    def days(self) -> tuple[str, str] | None:
        """The first and the last day of the samples; None without times."""
        times = [split.time for split in self.splits.values() if split.time is not None and len(split)]
        if not times:
            return None
        ends = min(map(np.min, times)), max(map(np.max, times))
        if not CALENDAR[0] <= ends[0] <= ends[1] <= CALENDAR[1]:
            return None
        first, last = (datetime.fromtimestamp(int(end), UTC).strftime("%Y-%m-%d") for end in ends)
        return first, last

    def visible(self) -> "Step":
        """What a learner may see: train and val, never test."""
        return replace(self, splits={k: v for k, v in self.splits.items() if k != "test"})

    def past(self) -> "Step":
        """The whole step as training data, for protocols that train on a step after testing on it."""
        return replace(self, splits={"train": self.everything()})

    def everything(self) -> Split:
        """All samples of the step: in time order if times are known, else train, val, test. Among samples of one time
        each split keeps its order, and how the splits are mixed is drawn."""
        parts = [self.splits[s] for s in SPLITS if s in self.splits]
        samples = join(parts)
        if samples.time is None:
            return samples
        return samples.take(np.lexsort((np.concatenate([_turns(part) for part in parts]), samples.time)))


def _turns(split: Split) -> npt.NDArray[np.uint64]:
    """(N,) random numbers that rise along the samples of each time."""
    assert split.time is not None
    ranks = tie_ranks(split.ids)
    turns = np.empty_like(ranks)
    turns[np.argsort(split.time, kind="stable")] = ranks[np.lexsort((ranks, split.time))]
    return turns


def check(x: Array, y: Array, n_classes: int, what: str) -> None:
    """Raise BadArray for wrong shapes, dtypes, labels or infinite values, naming the first bad index."""
    if y.ndim != 1 or len(x) != len(y):
        raise BadArray(f"{what}: x has {len(x)} samples and y has shape {y.shape}.", "Expected y of shape (N,).")
    if y.dtype.kind not in "iu":
        raise BadArray(f"{what}: y has dtype {y.dtype}.", "Expected integers from 0.")
    bad = np.flatnonzero((y < 0) | (y >= n_classes))
    if len(bad):
        raise BadArray(f"{what}: label {y[bad[0]]} at index {bad[0]}.", f"Expected 0 … {n_classes - 1}.")
    if x.dtype.kind == "U":
        if x.ndim != 1:
            raise BadArray(f"{what}: texts of shape {x.shape}.", "Expected one text per sample, (N,).")
    elif x.dtype == np.uint8:
        if x.ndim != 4 or x.shape[-1] != 3:
            raise BadArray(
                f"{what}: uint8 x of shape {x.shape}.",
                "Expected images (N, H, W, 3).",
                "Use x.transpose(0, 2, 3, 1)." if x.ndim == 4 and x.shape[1] == 3 else "Convert grey or RGBA to RGB.",
            )
    elif x.dtype in (np.float16, np.float32):
        for start in range(0, len(x), 65_536):
            block = x[start : start + 65_536]
            finite = np.isfinite(block).reshape(len(block), -1).all(1)
            if not finite.all():
                raise BadArray(
                    f"{what}: x at index {start + int(np.argmin(finite))} holds NaN or infinity.",
                    "Expected finite numbers.",
                )
        if x.ndim < 2:
            raise BadArray(f"{what}: x has shape {x.shape}.", "Expected (N, D) features.")
    else:
        raise BadArray(
            f"{what}: x has dtype {x.dtype}.",
            "Expected float16 or float32 features, uint8 images (N, H, W, 3), or texts (N,).",
        )
