"""Which samples are test samples, so that none shares an uploader or is a near-duplicate of a training sample.

And equal times: whether a stream's order is one of time, and how much of it is a draw.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import IncompatibleStream
from driftline.curate.core.group_split import draw_sides
from driftline.stream_builder.step import Array, Split, Step

Group = npt.NDArray[np.int64]


def numbered(group: Array) -> Group:
    """Groups by name → by number; an empty name is a group of its own."""
    names = group.astype(np.str_)
    _, number = np.unique(names, return_inverse=True)
    alone = names == ""
    number = number.astype(np.int64)
    number[alone] = len(names) + np.flatnonzero(alone)
    return number


def equal_parts(time: Array, parts: int) -> npt.NDArray[np.int64]:
    """(N,) part of each time, from 0: at most `parts`, cut where samples are about equally many; equal times stay
    together."""
    ordered = np.sort(time)
    starts = np.array([ordered[len(time) * k // parts] for k in range(1, parts)], ordered.dtype)
    _, part = np.unique(np.searchsorted(np.unique(starts), time, side="right"), return_inverse=True)
    return part.astype(np.int64)


def resplit(steps: Sequence[Step], share: float, rng: np.random.Generator, grouped: bool, name: str) -> list[Step]:
    """A new split into train and test, stratified by step and class; the order within each side is kept.

    grouped: keep groups on one side, if they are known. name: of the stream, for messages. Raises IncompatibleStream if
    a step gets no test sample.
    """
    wholes = [step.everything() for step in steps]
    lengths = [len(whole) for whole in wholes]
    strata = np.repeat(np.arange(len(steps)), lengths), np.concatenate([whole.y for whole in wholes])
    group = _concat([whole.group for whole in wholes]) if grouped else None
    alone = np.arange(sum(lengths)) if group is None else group
    sides = np.split(draw_sides(strata, alone, share, rng), np.cumsum(lengths)[:-1])
    for step, side in zip(steps, sides, strict=True):
        if group is not None and not side.any():
            raise no_test(f"Step {step.name!r} of {name!r}", share, "Use --set splits=random.")
    return [with_test(step, whole, side) for step, whole, side in zip(steps, wholes, sides, strict=True)]


def no_test(what: str, share: float, way_out: str) -> IncompatibleStream:
    """The error for a step or period whose groups are all too large for a test split."""
    return IncompatibleStream(
        f"{what} has no test sample: each of its uploaders or groups of near-duplicates has more than {share:.0%} of "
        f"the samples that could be tested.",
        "Expected smaller groups: a group is never split between training and test.",
        way_out,
    )


def with_test(step: Step, whole: Split, side: npt.NDArray[np.bool_]) -> Step:
    """The step with the samples of `whole` as test samples where `side` is True, and as training samples elsewhere."""
    splits = {"train": whole.take(np.flatnonzero(~side)), "test": whole.take(np.flatnonzero(side))}
    return replace(step, splits=splits)


def _concat(groups: Sequence[Group | None]) -> Group | None:
    present = [group for group in groups if group is not None]
    return np.concatenate(present) if present and len(present) == len(groups) else None


def shared_with_training(steps: Sequence[Step]) -> float | None:
    """Share of all test samples whose group also has samples in training or validation, in any step; None if groups are
    not known or nothing is tested."""
    sides = [(name == "test", split.group) for step in steps for name, split in step.splits.items()]
    tested, trained = (_concat([group for test, group in sides if test == side]) for side in (True, False))
    return None if tested is None or trained is None or not len(tested) else float(np.isin(tested, trained).mean())


FACT = "equal_times"  # of a stream: how its builder ordered samples of one time
KEPT = "in the order of the source"


def drawn(seed: int) -> dict[str, str]:
    """The fact of a stream whose equal times are in the order that `time_order` draws."""
    return {FACT: f"in random order, seed {seed}"}


def ties_of(time: Array | None) -> dict[str, Any] | None:
    """{"share": samples that have the time of another one, "largest": samples of the most frequent time} of N times;
    None without times. Years and days are as many seconds: their samples are ties."""
    if time is None or not len(time):
        return None
    counts = np.unique(np.asarray(time), return_counts=True)[1]
    return {"share": round(float(counts[counts > 1].sum() / len(time)), 4), "largest": int(counts.max())}


def train_times(steps: Sequence[Step]) -> Array | None:
    """(N,) times of all training samples in stream order; None if some are not known."""
    splits = [step["train"] for step in steps if "train" in step.splits]
    times = [np.asarray(split.time) for split in splits if split.time is not None]
    return np.concatenate(times) if times and len(times) == len(splits) else None


def is_random(ties: Mapping[str, Any] | None, samples: int, facts: Mapping[str, Any]) -> bool:
    """Whether the whole order is a draw: all `samples` have one time, and their builder drew their order."""
    return ties is not None and ties["largest"] == samples and facts.get(FACT, KEPT) != KEPT


def sentence(ties: Mapping[str, Any] | None, samples: int, facts: Mapping[str, Any]) -> str:
    """What the reader of a stream's label correlation must know about its ties. samples: with these times."""
    if ties is None:
        return "No times are known: the order is that of the source."
    if not ties["share"]:
        return "No two training samples have the same time."
    how = str(facts.get(FACT, KEPT))
    if ties["largest"] == samples and samples > 1:
        return f"All {samples:,} training samples have the same time, so there is no order of time; they are {how}."
    return (
        f"{ties['share']:.1%} of the training samples have the time of another one (up to {ties['largest']:,} the "
        f"same); equal times are {how}."
    )
