"""Which samples are test samples, so that none shares an uploader or is a near copy of a training sample."""

from collections.abc import Sequence
from dataclasses import replace

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
        f"{what} has no test sample: each of its uploaders or groups of near copies has more than {share:.0%} of the "
        f"samples that could be tested.",
        "Expected smaller groups, because none may be on both sides.",
        way_out,
    )


def with_test(step: Step, whole: Split, side: npt.NDArray[np.bool_]) -> Step:
    """The step with the samples of `whole` as test samples where `side` is True, and as training samples elsewhere."""
    splits = {"train": whole.take(np.flatnonzero(~side)), "test": whole.take(np.flatnonzero(side))}
    return replace(step, splits=splits)


def published(steps: Sequence[Step], number: int) -> list[Step]:
    """The published split `number`, of the K that all steps have."""
    wholes = [step.everything() for step in steps]
    return [
        with_test(step, whole, whole.test_in[:, number])
        for step, whole in zip(steps, wholes, strict=True)
        if whole.test_in is not None
    ]


def _concat(groups: Sequence[Group | None]) -> Group | None:
    present = [group for group in groups if group is not None]
    return np.concatenate(present) if present and len(present) == len(groups) else None


def shared_with_training(steps: Sequence[Step]) -> float | None:
    """Share of all test samples whose group also has samples in training or validation, in any step; None if groups are
    not known or nothing is tested."""
    sides = [(name == "test", split.group) for step in steps for name, split in step.splits.items()]
    tested, trained = (_concat([group for test, group in sides if test == side]) for side in (True, False))
    return None if tested is None or trained is None or not len(tested) else float(np.isin(tested, trained).mean())
