"""When the steps of a stream are: what a run records about it, and ages in real time where the steps have dates."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from driftline.stream_builder.step import CALENDAR
from driftline.stream_builder.stream import Stream

Unit = Literal["years", "months", "days", "steps"]
DAY = 86400.0
SECONDS: dict[Unit, float] = {"years": 365.2425 * DAY, "months": 365.2425 * DAY / 12, "days": DAY}
LEAST = 2  # of a unit between the first and the last step


@dataclass(frozen=True)
class Timeline:
    """The steps of a stream in time."""

    names: tuple[str, ...]
    """(T,) of the steps"""
    at: npt.NDArray[np.float64]
    """(T,) time of each step after the first, in `unit`"""
    unit: Unit
    """"steps" where the stream has no dates, or its steps are not in their order"""
    dates: tuple[int, ...] = ()
    """(T,) median time of each step's samples, seconds UTC; () where the stream has no dates"""


def record(stream: Stream) -> dict[str, Any]:
    """What a run's record says: `names` of the steps and, if all samples have one, their median `dates`."""
    dates = []
    for step in stream.steps:
        times = [split.time for split in step.splits.values() if len(split)]
        dated = [time for time in times if time is not None]
        if not dated or len(dated) < len(times):
            return {"names": [step.name for step in stream.steps]}
        dates.append(int(np.median(np.concatenate(dated))))
    return {"names": [step.name for step in stream.steps], "dates": dates}


def timeline(about: Mapping[str, Any]) -> Timeline:
    """The timeline of a run's stream, by the run's record."""
    steps, stored = about["steps"], about.get("timeline", {})
    names, dates = tuple(stored.get("names", map(str, range(steps)))), tuple(stored.get("dates", ()))
    if not all(CALENDAR[0] <= date <= CALENDAR[1] for date in dates):
        dates = ()
    if len(dates) < 2 or bool((np.diff(dates) <= 0).any()):
        return Timeline(names, np.arange(steps, dtype=np.float64), "steps", dates)
    seconds = np.asarray(dates, np.float64) - dates[0]
    unit: Unit = next((unit for unit, size in SECONDS.items() if seconds[-1] >= LEAST * size), "days")
    return Timeline(names, seconds / SECONDS[unit], unit, dates)


@dataclass(frozen=True)
class Shared:
    """What two versions have in common."""

    same: tuple[int, ...]
    """steps whose training and test data are the same"""
    learned: int
    """number of first steps that are the same"""
    pools: int
    """number of first steps of which the unlabelled samples are the same, too"""

    def cells(self, unlabelled: bool) -> list[tuple[int, int]]:
        """(trained up to, tested on) of the scores that may be compared. unlabelled: of a learner that uses such."""
        return [(i, j) for i in range(self.pools if unlabelled else self.learned) for j in self.same]


def release_record(stream: Stream) -> dict[str, Any] | None:
    """What a run's record says about the release of its stream; None for other streams."""
    facts = stream.facts
    if not isinstance(facts.get("buckets"), list) or len(facts["buckets"]) != len(stream.steps):
        return None
    return {"name": facts.get("release"), "version": facts.get("version"), "buckets": facts["buckets"]}


def shared(a: Mapping[str, Any], b: Mapping[str, Any]) -> Shared:
    """What two versions have in common, by their records, step for step. A step is the same only as a whole, because
    some protocols train and test on all of it."""
    steps = list(zip(a["buckets"], b["buckets"], strict=False))
    alike = [all(one[key] == other[key] for key in ("train", "test")) for one, other in steps]
    same = tuple(i for i, is_same in enumerate(alike) if is_same)
    learned = [*alike, False].index(False)
    pools = [one.get("unlabelled") == other.get("unlabelled") for one, other in steps[:learned]]
    return Shared(same, learned, [*pools, False].index(False))
