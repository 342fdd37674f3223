"""Times that are numbers since 1970: their unit, and numbers that are none."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

UNITS = (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9))
LATEST = 10**11  # seconds: the year 5138; larger numbers are milliseconds or smaller units


def not_seconds(values: npt.NDArray[np.int64]) -> str:
    """What whole numbers look like that are no seconds since 1970, if all look so; else ""."""
    day, month, year = values % 100, values // 100 % 100, values // 10_000

    def within(part: npt.NDArray[np.int64], low: int, high: int) -> bool:
        return bool(((low <= part) & (part <= high)).all())

    if within(day, 1, 31) and within(month, 1, 12) and within(year, 1800, 2100):
        return "days, YYYYMMDD"
    if within(day, 1, 12) and within(values // 100, 1800, 2100):
        return "months, YYYYMM"
    return "days, since 1970 or of a spreadsheet (since 1899-12-30)" if within(values, 5_000, 80_000) else ""


def per_second(largest: int, unit: str = "auto") -> int:
    """How many of a unit are a second; auto: that of a column of numbers whose largest one is this."""
    return dict(UNITS)[unit] if unit != "auto" else 10 ** (3 * sum(largest >= LATEST * 10 ** (3 * k) for k in range(3)))
