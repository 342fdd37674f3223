"""How steps are called: by their dates, where their names only count."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise

from driftline.eval.scoring.timeline import record
from driftline.stream_builder.stream import Stream


def named_steps(stream: Stream) -> list[str]:
    """The steps of a stream, as `step_names` has them."""
    about = record(stream)
    return step_names(about["names"], about.get("dates", ()))


def step_names(names: Sequence[str], dates: Sequence[int]) -> list[str]:
    """Names of steps; their dates if there are some and the names only count.

    >>> step_names(["1", "2"], [0, 366 * 86_400]), step_names(["before", "after"], [0, 366 * 86_400])
    (['1970', '1971'], ['before', 'after'])
    """
    counts = any(list(names) == [str(first + i) for i in range(len(names))] for first in (0, 1))
    return date_names(dates) if counts and len(dates) == len(names) else list(names)


def date_names(dates: Sequence[int]) -> list[str]:
    """Seconds UTC, rising → years, months or days: the shortest form in which all differ.

    >>> date_names([0, 366 * 86_400]), date_names([0, 40 * 86_400]), date_names([0, 86_400])
    (['1970', '1971'], ['1970-01', '1970-02'], ['1970-01-01', '1970-01-02'])
    """
    days = [datetime.fromtimestamp(date, UTC) for date in dates]
    for form in ("%Y", "%Y-%m", "%Y-%m-%d"):
        names = [day.strftime(form) for day in days]
        if all(a != b for a, b in pairwise(names)):
            return names
    return [day.strftime("%Y-%m-%d %H:%M") for day in days]
