"""Dates to doubt: of clocks that were reset, many on the first hour of a year; and dates that contradict others."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

DEFAULT_YEARS = (1970, 1980, 2000, 2010)  # in which clocks of cameras, phones and computers begin
FEWEST = 3  # photos of a spike
HOUR = 3600
PRECISION = re.compile(r'"date_precision": "(\w+)"')


def reset_clocks(times: Iterable[int | None], extra: Sequence[str | None] | None = None) -> dict[str, int]:
    """Day → photos on its first hour, for each 1 January with FEWEST or more of them that is a default of clocks or has
    at least half of its year's photos. times: seconds on the camera's clock, or upload times. extra: with the precision
    of each date. Dates of a day or less are not counted, nor midnights of unknown precision, which may be such dates.

    >>> reset_clocks([946_684_801, 946_684_805, 946_684_809, 1_300_000_000])
    {'2000-01-01': 3}
    """
    first_hours: Counter[int] = Counter()
    years: Counter[int] = Counter()
    for number, time in enumerate(times):
        if time is None:
            continue
        match = PRECISION.search((extra[number] or "") if extra is not None else "")
        moment = datetime.fromtimestamp(time, UTC)
        years[moment.year] += 1
        exact = match[1] in ("minute", "second") if match else bool(moment.hour or moment.minute or moment.second)
        first_hours[moment.year] += exact and (moment.month, moment.day, moment.hour) == (1, 1, 0)
    return {
        f"{year:04}-01-01": n
        for year, n in sorted(first_hours.items())
        if n >= FEWEST and (year in DEFAULT_YEARS or 2 * n >= years[year])
    }


def reset_sentence(day: str, photos: int, column: str) -> str:
    """A spike in words. column: of the table, by which a filter can drop its photos."""
    return (
        f"{photos:,} photos on the first hour of {day}, where clocks begin that were reset; to leave them out, set "
        f"filter.where to {without_spike(day, column)}"
    )


def without_spike(day: str, column: str) -> str:
    """An expression for filter.where that drops what a column has on the first hour of a day."""
    start = int(datetime.fromisoformat(f"{day}T00:00:00Z").timestamp())
    return f"{column} IS NULL OR {column} NOT BETWEEN {start} AND {start + HOUR - 1}"


def contradicted(extra: Iterable[str | None]) -> dict[str, int]:
    """ "exif, path" → photos whose date in EXIF counts and contradicts that in their path; and so on. extra:
    of each photo, as the source `folder` writes it."""
    counts: Counter[str] = Counter()
    for text in extra:
        if text and '"date_contradicted"' in text:
            facts = json.loads(text)
            counts.update(f"{facts['date_from']}, {other}" for other in facts["date_contradicted"])
    return dict(sorted(counts.items()))


def contradiction_sentence(places: str, photos: int) -> str:
    """Photos of `contradicted` in words."""
    first, other = places.split(", ")
    return (
        f"{photos:,} photos have a date in {first}, which counts, and one in {other} that contradicts it; to change "
        "the order, set collection.dates"
    )
