"""Years, months, weeks, days, or N parts of equal length: which period of the log a moment is in."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.times import CALENDAR, count_of
from driftline.curate.core.times.dates import iso

DAY = 86_400
MONDAY = 4 * DAY  # the first Monday after 1970
WIDTHS = {"week": 7 * DAY, "day": DAY}


@dataclass(frozen=True)
class Periods:
    """Periods without gaps. Their numbers count from the period of the first prediction; below 0: before."""

    unit: str
    """year, month, week, day; period: parts of equal length"""
    begin: int
    """the first second of the first one, UTC"""
    width: int
    """seconds; 0: of the calendar"""
    last: int
    """the last prediction, seconds UTC"""

    def __len__(self) -> int:
        return int(self.number(self.last)) + 1

    def number(self, moment: Any) -> npt.NDArray[np.int64]:
        """Number of the period of each moment."""
        moment = np.asarray(moment, np.int64)
        if self.width:
            return np.asarray((moment - self.begin) // self.width)
        of_all, begin = (
            at.astype("datetime64[s]").astype(f"datetime64[{CALENDAR[self.unit]}]").astype(np.int64)
            for at in (moment, np.array(self.begin))
        )
        return np.asarray(of_all - begin)

    def start(self, number: int) -> int:
        """The first second of a period."""
        if self.width:
            return self.begin + number * self.width
        first = np.array(self.begin, "datetime64[s]").astype(f"datetime64[{CALENDAR[self.unit]}]")
        return int((first + number).astype("datetime64[s]").astype(np.int64))

    @property
    def days(self) -> float:
        """From the start of the first to the end of the last one."""
        return (self.start(len(self)) - self.begin) / DAY


def periods_of(time: npt.NDArray[np.int64], period: str | int) -> Periods:
    """time (N,): seconds UTC. period: year, month, week, day, or a number of parts. Raises BadConfig."""
    first, last = int(time.min()), int(time.max())
    if (parts := count_of(period)) is not None:
        return Periods("period", first, max(1, -(-(last - first + 1) // parts)), last)
    unit = str(period)
    if width := WIDTHS.get(unit, 0):
        return Periods(unit, (first - MONDAY) // width * width + MONDAY, width, last)
    begin = np.array(first, "datetime64[s]").astype(f"datetime64[{CALENDAR[unit]}]").astype("datetime64[s]")
    return Periods(unit, int(begin.astype(np.int64)), 0, last)


def day_of(moment: int) -> str:
    """
    >>> day_of(86_400)
    '1970-01-02'
    """
    return iso(moment)[:10]
