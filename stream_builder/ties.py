"""Equal times: whether a stream's order is one of time, and how much of it is a draw."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.seeding import time_order
from driftline.stream_builder.step import Array, Step

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


def resorted(steps: Sequence[Step]) -> npt.NDArray[np.int64] | None:
    """(N,) positions of the training samples of all steps in order of time; None where the stream's own order is one,
    or where times are not known."""
    times = train_times(steps)
    if times is None or bool((np.diff(times) >= 0).all()):
        return None
    return time_order(times, np.concatenate([step["train"].ids for step in steps]))


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
