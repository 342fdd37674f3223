"""Times: of cells, files, names and sidecars; units of numbers; years, months, weeks and days as periods, or a number
of parts."""

import re

from driftline.curate.core.errors import BadConfig

CALENDAR = {"year": "Y", "month": "M", "week": "W", "day": "D"}
"""period → numpy's unit"""
PERIODS = f"{', '.join(CALENDAR)}, or a number of steps"


def count_of(period: str | int) -> int | None:
    """The number of steps that a period is; None for one of the calendar. Raises BadConfig."""
    if period in CALENDAR:
        return None
    if not re.fullmatch("[0-9]{1,18}", str(period)) or not int(period):
        raise BadConfig(f"--period is {str(period)!r}.", f"Expected {PERIODS}.")
    return int(period)
