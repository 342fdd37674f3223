"""Months, weeks, days, or N parts of equal length: which period of the log a moment is in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.times.calendar_periods import CALENDAR, count_of
from driftline.curate.core.times.dates import iso

DAY = 86_400
MONDAY = 4 * DAY  # the first Monday after 1970


@dataclass(frozen=True)
class Periods:
    """P periods without gaps, from the first to the last prediction."""

    unit: str
    """year, month, week, day; period: parts of equal length"""
    borders: npt.NDArray[np.int64]
    """(P + 1,) the first second of each, and of the one after the last"""

    def __len__(self) -> int:
        return len(self.borders) - 1

    def number(self, moment: Any) -> npt.NDArray[np.int64]:
        """Number of the period of each moment; below 0, P and above: as if periods went on."""
        moment = np.asarray(moment, np.int64)
        day = moment // DAY
        first, last = int(day.min(initial=0)), int(day.max(initial=0))
        if self.unit not in CALENDAR or last - first >= moment.size:
            return np.asarray(_number(self, moment))
        # Calendar periods begin at midnight: a log has many rows a day.
        return np.asarray(_number(self, np.arange(first, last + 1) * DAY)[day - first])

    def start(self, number: int) -> int:
        """The first second of a period, also of one before or after the log."""
        if 0 <= number < len(self.borders):
            return int(self.borders[number])
        if self.unit in CALENDAR and self.unit != "week":
            code = CALENDAR[self.unit]
            first = self.borders[:1].astype("datetime64[s]").astype(f"datetime64[{code}]")[0]
            return int((first + number).astype("datetime64[s]").astype(np.int64))
        return int(self.borders[0] + number * (self.borders[1] - self.borders[0]))


def periods_of(time: npt.NDArray[np.int64], period: str | int) -> Periods:
    """time (N,): seconds UTC. period: year, month, week, day, or a number of parts. Raises BadConfig."""
    first, last = int(time.min()), int(time.max())
    parts = count_of(period)
    if parts is not None:
        width = max(1, -(-(last - first + 1) // parts))
        return Periods("period", first + width * np.arange(parts + 1, dtype=np.int64))
    unit = str(period)
    if unit == "week":
        start = (first - MONDAY) // (7 * DAY) * 7 * DAY + MONDAY
        return Periods(
            unit, np.arange(start, last + 7 * DAY + 1, 7 * DAY, dtype=np.int64)[: (last - start) // (7 * DAY) + 2]
        )
    code = CALENDAR[unit]
    ends = np.array([first, last]).astype("datetime64[s]").astype(f"datetime64[{code}]")
    borders = np.arange(ends[0], ends[1] + 2).astype("datetime64[s]").astype(np.int64)
    return Periods(unit, borders)


def _number(periods: Periods, moment: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    first = periods.borders[0]
    if periods.unit in CALENDAR and periods.unit != "week":
        kind = f"datetime64[{CALENDAR[periods.unit]}]"
        start = np.asarray(first).astype("datetime64[s]").astype(kind).astype(np.int64)
        return moment.astype("datetime64[s]").astype(kind).astype(np.int64) - start
    return (moment - first) // (periods.borders[1] - first)


def day_of(moment: int) -> str:
    """
    >>> day_of(86_400)
    '1970-01-02'
    """
    return iso(moment)[:10]
