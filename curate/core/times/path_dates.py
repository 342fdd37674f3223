"""Dates in the name of a photo and of its folders; and all places where a photo's date may be."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from driftline.curate.core.times.dates import Date, exif, from_file, from_sidecar, since_1970

YEAR = r"(1[89]\d\d|20\d\d)"
# 2012-05-01, 20120501_100000, 2012/05/01, "Screenshot 2012-05-01 at 9.00.00 AM": years 1800-2099, real months and days
DAY_FIRST_YEAR = re.compile(
    rf"(?<!\d){YEAR}([-_./]?)(0[1-9]|1[0-2])\2(0[1-9]|[12]\d|3[01])"
    r"(?:(?: at |[ T_-])([01]\d|2[0-3]|\d(?=[.:]))[-_.:]?([0-5]\d)[-_.:]?([0-5]\d)(?:\d{3})?(?:\s?([AP])M)?)?(?!\d)"
)
# 25.12.2005, 25-12-2005, 12/25/2005
DAY_LAST_YEAR = re.compile(rf"(?<![\d.])(\d{{1,2}})([-_. /])(\d{{1,2}})\2{YEAR}(?![\d.]\d)(?!\d)")
MILLISECONDS = re.compile(r"(?<!\d)(1\d{12})(?!\d)[^/]*$")  # since 1970, as phones and messengers name files: 2001-2033
MONTH = re.compile(rf"(?<!\d){YEAR}(?:[-_.](0[1-9]|1[0-2])(?![-_.]?\d)|/(0[1-9]|1[0-2])/)")
COUNTED = (
    r"(?:x *\d|photo|pic|image|img|file|scan|slide|negativ|bild|foto|pixel|step|mile|item|result|"
    r"(?:px|dpi|iso|m|km|mm|kb|mb)\b)"
)
# A folder that is a year or begins with one; a number in the photo's own name, or of something, may be a counter.
# 1920/1080 is a size.
FOLDER = re.compile(rf"(?:^|/){YEAR}(?:[ _-]+(?!{COUNTED})[^\d/][^/]*)?(?=/)(?!/[1-9]\d{{2,3}}/)", re.IGNORECASE)


def from_path(path: Path, name: str) -> Date | None:
    """The last date of the most exact kind, because the last is the nearest to the photo's own name. name: the path
    below the folder of the collection.

    >>> from_path(Path("x"), "2011/trip/IMG_20120501_100000.jpg"), from_path(Path("x"), "1970 harbour/a.jpg")
    (Date(taken=1335866400, offset=None, precision='second'), Date(taken=0, offset=None, precision='year'))
    """
    for pattern, read in KINDS:
        for match in reversed(list(pattern.finditer(name))):
            try:
                return read(match.groups())
            except ValueError:  # 30 February
                continue
    return None


Parts = Sequence[str | None]


def _first_year(parts: Parts) -> Date:
    year, _, month, day, hour, minute, second, half = parts
    hours = int(hour or 0) % 12 + 12 * (half in ("P", "p")) if half else int(hour or 0)
    moment = datetime(int(year or 0), int(month or 0), int(day or 0), hours, int(minute or 0), int(second or 0))
    return Date(since_1970(moment), None, "day" if hour is None else "second")


def _last_year(parts: Parts) -> Date:
    """Day and month in the order that is possible; with dots the day is first. Where both are, only the year counts."""
    first, mark, second, year = int(parts[0] or 0), parts[1], int(parts[2] or 0), int(parts[3] or 0)
    if mark != "." and first != second and max(first, second) <= 12:
        return Date(since_1970(datetime(year, 1, 1)), None, "year")
    day, month = (second, first) if mark != "." and second > 12 else (first, second)
    return Date(since_1970(datetime(year, month, day)), None, "day")


def _month_or_year(parts: Parts) -> Date:
    year, *months = parts
    month = next(filter(None, months), None)
    return Date(since_1970(datetime(int(year or 0), int(month or 1), 1)), None, "month" if month else "year")


KINDS: tuple[tuple[re.Pattern[str], Callable[[Parts], Date]], ...] = (
    (DAY_FIRST_YEAR, _first_year),
    (DAY_LAST_YEAR, _last_year),
    (MILLISECONDS, lambda parts: Date(int(parts[0] or 0) // 1000, 0, "second")),
    (MONTH, _month_or_year),
    (FOLDER, _month_or_year),
)
DATES: Mapping[str, Callable[[Path, str], Date | None]] = {
    "exif": lambda path, name: exif(path).date,
    "sidecar": from_sidecar,
    "path": from_path,
    "file": from_file,
}
"""place → the date there of a photo with this path, and this name below its folder"""
