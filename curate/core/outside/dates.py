"""Dates from outside: of table cells, of photo files (EXIF), of sidecars beside them, and in their paths."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from driftline.curate.core.outside.names import is_count

EPOCH = datetime(1970, 1, 1)
EXIF_IFD, ORIGINAL, DIGITIZED, OFFSET, MODEL = 0x8769, 0x9003, 0x9004, 0x9011, 0x0110
# 2012-05-01, 20120501_100000, 2012/05/01, "Screenshot 2012-05-01 at 9.00.00 AM": years 1800-2099, real months and days
DATE_IN_PATH = re.compile(
    r"(?<!\d)(1[89]\d\d|20\d\d)([-_./]?)(0[1-9]|1[0-2])\2(0[1-9]|[12]\d|3[01])"
    r"(?:(?: at |[ T_-])([01]\d|2[0-3]|\d(?=[.:]))[-_.:]?([0-5]\d)[-_.:]?([0-5]\d)(?:\d{3})?(?:\s?([AP])M)?)?(?!\d)"
)
MONTH_IN_PATH = re.compile(r"(?<!\d)(1[89]\d\d|20\d\d)(?:[-_.](0[1-9]|1[0-2])(?![-_.]?\d)|/(0[1-9]|1[0-2])/)")
# A folder that is a year or begins with one; a number in the photo's own name may be a counter.
YEAR_IN_PATH = re.compile(r"(?:^|/)(1[89]\d\d|20\d\d)(?:[ _-]+[^\d/][^/]*)?(?=/)")
# The capture before the scan, wherever they stand: CreateDate is when the file was made, ModifyDate is not used.
DATES_IN_XMP = tuple(
    re.compile(tag + r"(?:=[\"']|>\s*)(\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?)?)")
    for tag in ("exif:DateTimeOriginal", "photoshop:DateCreated", "xmp:CreateDate")
)
PRECISIONS = {4: "year", 7: "month", 10: "day"}  # of an ISO date, by its length
LARGEST_SIDECAR = 1 << 20  # bytes
# time on the camera's clock (seconds), its offset from UTC (seconds), precision: year, month, day or second
Date = tuple[int, int, str]


def seconds_of(value: Any) -> int:
    """A time → seconds since the epoch, UTC. Raises ValueError.

    Four digits are a year (its first second), other numbers are seconds, text is ISO 8601 (without zone: UTC).

    >>> seconds_of("1970"), seconds_of("86400"), seconds_of("1970-01-01T00:01:00+00:00"), seconds_of(1.5)
    (0, 86400, 60, 1)
    """
    if isinstance(value, datetime):
        return math.floor((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp())
    if isinstance(value, date):
        return int(datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp())
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{type(value).__name__} is not a time")
    text = str(value)
    if is_count(text) and len(text) == 4:
        return int(datetime(int(text), 1, 1, tzinfo=UTC).timestamp())
    try:
        number = int(text) if not isinstance(value, float) else math.floor(value)
    except ValueError:
        return seconds_of(datetime.fromisoformat(text))
    if abs(number) >= 2**62:
        raise ValueError(f"{number} is not a time")
    return number


def iso(seconds: int) -> str:
    """Seconds UTC → ISO 8601.

    >>> iso(1331840483)
    '2012-03-15T19:41:23Z'
    """
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def exif(path: Path) -> tuple[Date | None, str | None]:
    """Capture time with its offset, camera model."""
    from PIL import Image

    with Image.open(path) as image:
        return from_exif(image.getexif())


def from_exif(exif: Any) -> tuple[Date | None, str | None]:
    """The same of tags that Pillow has read."""
    details = exif.get_ifd(EXIF_IFD)
    model = str(exif.get(MODEL) or "").replace("\x00", "").strip() or None
    for tag in (ORIGINAL, DIGITIZED):
        try:
            text = str(details.get(tag, "")).strip("\x00 ")
            taken = int((datetime.strptime(text, "%Y:%m:%d %H:%M:%S") - EPOCH).total_seconds())
        except ValueError:
            continue
        return (taken, _offset(str(details.get(OFFSET, ""))), "second"), model
    return None, model


def _offset(text: str) -> int:
    """`+02:00` → 7200; anything else → 0.

    >>> _offset("+02:00"), _offset("-09:30"), _offset("?")
    (7200, -34200, 0)
    """
    try:
        moment = datetime.strptime(text.strip("\x00 "), "%z")
    except ValueError:
        return 0
    return int((moment.utcoffset() or timedelta()).total_seconds())


def from_sidecar(path: Path, name: str) -> Date | None:
    """PHOTO.jpg.json, PHOTO.json, PHOTO.jpg.xmp, PHOTO.xmp: the first that holds a date."""
    for sidecar in (path.with_name(path.name + ".json"), path.with_suffix(".json")):
        try:
            value = json.loads(_small(sidecar))
            date = value.get("photoTakenTime", value.get("date"))
            seconds = seconds_of(date["timestamp"] if isinstance(date, dict) else date)
            return seconds, 0, PRECISIONS.get(len(date), "second") if isinstance(date, str) else "second"
        except (OSError, ValueError, KeyError, AttributeError, OverflowError, RecursionError):
            continue
    for sidecar in (path.with_name(path.name + ".xmp"), path.with_suffix(".xmp")):
        try:
            text = _small(sidecar)
            first = next((match for date in DATES_IN_XMP if (match := date.search(text))), None)
            if first:
                moment = datetime.fromisoformat(first[1])
                offset = int((moment.utcoffset() or timedelta()).total_seconds())
                precision = PRECISIONS.get(len(first[1]), "second")
                return int((moment.replace(tzinfo=None) - EPOCH).total_seconds()), offset, precision
        except (OSError, ValueError):
            continue
    return None


def _small(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(LARGEST_SIDECAR).decode("utf-8", "replace")


def from_path(path: Path, name: str) -> Date | None:
    """The last date in the path, because it is the nearest to the photo's own name; else the last month, else year.

    >>> from_path(Path("x"), "2011/trip/IMG_20120501_100000.jpg"), from_path(Path("x"), "1970 harbour/a.jpg")
    ((1335866400, 0, 'second'), (0, 0, 'year'))
    """
    for match in reversed(list(DATE_IN_PATH.finditer(name))):
        year, _, month, day, hour, minute, second, half = match.groups()
        hours = int(hour or 0) % 12 + 12 * (half == "P") if half else int(hour or 0)
        try:
            moment = datetime(int(year), int(month), int(day), hours, int(minute or 0), int(second or 0))
        except ValueError:  # 30 February
            continue
        return int((moment - EPOCH).total_seconds()), 0, "day" if hour is None else "second"
    for match in reversed(list(MONTH_IN_PATH.finditer(name))):
        moment = datetime(int(match[1]), int(match[2] or match[3]), 1)
        return int((moment - EPOCH).total_seconds()), 0, "month"
    for match in reversed(list(YEAR_IN_PATH.finditer(name))):
        return int((datetime(int(match[1]), 1, 1) - EPOCH).total_seconds()), 0, "year"
    return None


def from_file(path: Path, name: str) -> Date | None:
    return int(path.stat().st_mtime), 0, "second"


DATES: Mapping[str, Callable[[Path, str], Date | None]] = {
    "exif": lambda path, name: exif(path)[0],
    "sidecar": from_sidecar,
    "path": from_path,
    "file": from_file,
}
