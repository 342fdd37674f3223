"""Dates from outside: of table cells, of photo files (EXIF) and of sidecars beside them."""

import json
import math
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from warnings import catch_warnings, simplefilter

from driftline.curate.core.late import Image

SIDECAR = 1 << 20  # bytes of a photo's sidecar that are read
EPOCH = datetime(1970, 1, 1)
DAY = 86_400  # seconds
MONTH = re.compile(r"\d{4}-\d\d")
YEAR = re.compile(r"[0-9]{4}|[12][0-9]{3}\.0+")  # as a float: of a column in which one year is missing
EXIF_IFD, GPS_IFD, MODEL, EDITED_AT = 0x8769, 0x8825, 0x0110, 0x0132
# name, tag, and the tag of its own offset from UTC
EXIF_DATES = (("DateTimeOriginal", 0x9003, 0x9011), ("DateTimeDigitized", 0x9004, 0x9012))
GPS_TIME, GPS_DATE = 7, 29
# 2016:02:26 13:14:15.123+0100 with its separators as programs write them, blanks for zeros, and ends left out
CLOCK = re.compile(
    r"(\d{4})(?:([-:/. ]) *(\d{1,2})(?:\2 *(\d{1,2})"
    r"(?:(?: +|T) *(\d{1,2})[:.] *(\d{1,2})(?:[:.] *(\d{1,2})(?:[.,:]\d+)?)?"
    r"(?: *([AaPp])\.?[Mm]\.?)? *(Z|[-+\u2212]\d{1,2}(?::?\d\d)?)?)?)?)?"
)
COMPACT = re.compile(r"^\s*(\d{4})(\d\d)(\d\d)(?:[ T](\d\d)(\d\d)(\d\d))?(?=$|\D)")  # 20160226T131415
FIRST_YEAR, LAST_YEAR = 1000, 9998  # years 1 and 9999 stand for "no date"
SENTINELS = (0, -1, 2**31 - 1, 10**13 - 1)  # numbers that databases write for no date
ZONES = 14 * 3600  # seconds: midnight of 1970-01-01 somewhere on earth stands for no date
OFFSETS = (-12 * 3600, 14 * 3600)  # of the zones on earth, seconds
# The capture before the scan, wherever they stand: CreateDate is when the file was made, ModifyDate is not used.
DATES_IN_XMP = tuple(
    re.compile(rf"\b\w+:{tag}\s*=\s*[\"']([^\"'<>]*)|<(\w+:{tag})(\s[^<>]*)?>")
    for tag in ("DateTimeOriginal", "DateCreated", "DateTimeDigitized", "CreateDate")
)
VALUE_IN_XMP = re.compile(r"\b\w+:(?:value|li)(?:\s*=\s*[\"']|(?:\s[^<>]*)?>)([^\"'<>]*)")
LONGEST_PROPERTY, MOST_DATES = 2000, 100  # characters of a date with its qualifiers; dates of one kind
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
MILLISECONDS = 10**11  # a larger number of seconds is after the year 5000
SUPPLEMENTAL = "supplemental-metadata"
LONGEST_TITLE = 51 - len(".json")  # characters of a sidecar's name in Google Takeout
COUNTED = re.compile(r"(.*)(\(\d+\))")
EDITED = (
    "-edited", "-effects", "-smile", "-mix", "-bearbeitet", "-bewerkt", "-edytowane", "-editado", "-ha editado",
    "-editat", "-modificato", "-modifié", "-編集済み",
)  # fmt: skip
"""what Google Photos adds to the name of an edited copy, by language"""


class Date(NamedTuple):
    """A time as a clock showed it."""

    taken: int
    """seconds since 1970 on the clock"""
    offset: int | None
    """of the clock from UTC, seconds; None: not known"""
    precision: str
    """year, month, day, minute or second"""

    @property
    def utc(self) -> int:
        """The earliest second that it may be, since 1970, UTC; a clock of unknown offset counts as UTC."""
        return self.taken - (self.offset or 0)

    @property
    def until(self) -> int:
        """The last second that it may be, in the same way."""
        return last_second(self.taken, self.precision) - (self.offset or 0)

    def contradicts(self, other: "Date") -> bool:
        """Whether more lies between the two than zones explain: a day, or 14 hours if one of them is UTC."""
        zones = DAY if self.offset is None and other.offset is None else OFFSETS[1]
        return max(self.utc, other.utc) - min(self.until, other.until) > zones


class Tags(NamedTuple):
    """What EXIF says of the capture."""

    date: Date | None
    """the first date that can be read"""
    model: str | None
    """of the camera"""
    refused: dict[str, str]
    """name of a tag → its value, which is no date"""
    contradicted: dict[str, str]
    """gps, edit (the last one) → its date, which cannot be if `date` is right"""
    warned: tuple[str, ...] = ()
    """what Pillow warned of; it does not know the photo's name"""


def seconds_of(value: Any) -> int:
    """A time → seconds since the epoch, UTC. Raises ValueError.

    Four digits are a year (its first second), also as a float or text such as 2019.0 (from 1000 to 2999); other numbers
    are seconds, text is ISO 8601 (without zone or with UTC or GMT after a blank: UTC; 2019-03: its first second).

    >>> seconds_of("1970"), seconds_of("86400"), seconds_of("1970-01-01T00:01:00+00:00"), seconds_of(1.5)
    (0, 86400, 60, 1)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{type(value).__name__} is not a time")
    if YEAR.fullmatch(text := str(value)):
        return int(datetime(int(text[:4]), 1, 1, tzinfo=UTC).timestamp())
    try:
        number = math.floor(value) if isinstance(value, float) else int(text.removesuffix(".0"))
    except ValueError:
        text = re.sub(r" (?:UTC|GMT)$", "+00:00", text)
        moment = datetime.fromisoformat(f"{text}-01" if MONTH.fullmatch(text) else text)
        return math.floor((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    if abs(number) >= 2**62:
        raise ValueError(f"{number} is not a time")
    return number


def last_second(start: int, precision: str) -> int:
    """The last second of the year, month, day or minute that begins at `start`.

    >>> iso(last_second(seconds_of("1904-02"), "month"))
    '1904-02-29T23:59:59Z'
    """
    moment = EPOCH + timedelta(seconds=start)
    if precision == "year":
        return since_1970(datetime(moment.year + 1, 1, 1)) - 1
    if precision == "month":
        return since_1970(datetime(moment.year + moment.month // 12, moment.month % 12 + 1, 1)) - 1
    return start + {"day": DAY, "minute": 60}.get(precision, 1) - 1


def iso(seconds: int) -> str:
    """Seconds UTC → ISO 8601.

    >>> iso(1331840483)
    '2012-03-15T19:41:23Z'
    """
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def shown_date(date: Date) -> str:
    """As precise as it is: "1985", "1985-07", "1985-07-01", "1985-07-01T12:00:00".

    >>> shown_date(clock("1985-07"))
    '1985-07'
    """
    return iso(date.taken)[: {"year": 4, "month": 7, "day": 10, "minute": 16}.get(date.precision, 19)]


def clock(text: str) -> Date:
    """A date and time as cameras, phones and programs write them. Raises ValueError.

    A month or day of 0 is unknown. 24:00:00 is the next midnight.

    >>> clock("2008: 5: 1  9: 3: 2"), clock("1985-07")
    (Date(taken=1209632582, offset=None, precision='second'), Date(taken=489024000, offset=None, precision='month'))
    """
    spaced = COMPACT.sub(
        lambda m: "-".join(m.group(1, 2, 3)) + (f"T{':'.join(m.group(4, 5, 6))}" if m[4] else ""), text, 1
    )
    match = CLOCK.fullmatch(spaced.strip(" :"))  # a time of blanks is none
    if match is None:
        raise ValueError(f"{text!r} is not a date")
    year, _, month, day, hour, minute, second, half, zone = match.groups()
    if not FIRST_YEAR <= int(year) <= LAST_YEAR:
        raise ValueError(f"{text!r} stands for no date")
    if not int(month or 0):
        return Date(since_1970(datetime(int(year), 1, 1)), None, "year")
    if not int(day or 0):
        return Date(since_1970(datetime(int(year), int(month), 1)), None, "month")
    midnight = since_1970(datetime(int(year), int(month), int(day)))
    hours = int(hour or 0) % 12 + 12 * (half in "Pp") if half else int(hour or 0)
    within = 3600 * hours + 60 * int(minute or 0) + int(second or 0)
    if within > DAY or int(minute or 0) > 59 or int(second or 0) > 60:
        raise ValueError(f"{text!r} has a time that no clock shows")
    if abs(midnight + within) <= ZONES:
        raise ValueError(f"{text!r} stands for no date")
    if hour is None:
        return Date(midnight, None, "day")
    return Date(midnight + within, _offset(zone or ""), "minute" if second is None else "second")


def since_1970(moment: datetime) -> int:
    """Seconds from 1970 to what a clock shows."""
    return int((moment - EPOCH).total_seconds())


def _offset(text: str) -> int | None:
    """`+02:00` → 7200; anything else → None.

    >>> _offset("+02:00"), _offset("-0930"), _offset("Z"), _offset("?")
    (7200, -34200, 0, None)
    """
    match = re.fullmatch(r"Z|([-+\u2212])(\d{1,2})(?::?(\d\d))?", text)
    if match is None:
        return None
    seconds = 3600 * int(match[2] or 0) + 60 * int(match[3] or 0)
    seconds = seconds if match[1] in (None, "+") else -seconds
    return seconds if OFFSETS[0] <= seconds <= OFFSETS[1] else None


def exif(path: Path) -> Tags:
    """What the EXIF of a photo says."""
    with catch_warnings(record=True) as caught:
        simplefilter("always")
        with Image.open(path) as image:
            tags = from_exif(image.getexif())
    return tags._replace(warned=tuple(dict.fromkeys(" ".join(str(one.message).split()) for one in caught)))


def from_exif(exif: Any) -> Tags:
    """The same of tags that Pillow has read. A date without offset gets that of the time of GPS, which is UTC."""
    details = exif.get_ifd(EXIF_IFD)
    refused: dict[str, str] = {}
    model = _text(exif.get(MODEL)) or None
    for name, tag, own_offset in EXIF_DATES:
        value = _text(details.get(tag))
        try:
            date = clock(value)
        except ValueError:
            refused |= {name: value[:60]} if value else {}
            continue
        if date.offset is None and date.precision in ("minute", "second"):
            offset = _offset(_text(details.get(own_offset)))
            date = date._replace(offset=_offset_by_gps(exif, date.taken) if offset is None else offset)
        return Tags(date, model, refused, _contradictions(exif, date))
    return Tags(None, model, refused, {})


def _text(value: Any) -> str:
    """The value of a tag up to its first NUL."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
    return text.split("\x00")[0].strip()


def _offset_by_gps(exif: Any, taken: int) -> int | None:
    """The offset of a clock that showed `taken` at the date and time of GPS, rounded to 15 minutes as zones are."""
    moment = _gps_time(exif)
    offset = None if moment is None else 900 * round((taken - moment) / 900)
    return offset if offset is not None and OFFSETS[0] <= offset <= OFFSETS[1] else None


def _gps_time(exif: Any) -> float | None:
    """Seconds since 1970, UTC."""
    gps = exif.get_ifd(GPS_IFD)
    try:
        hours, minutes, seconds = map(float, gps[GPS_TIME])
        moment = clock(_text(gps[GPS_DATE])).taken + 3600 * hours + 60 * minutes + seconds
        return moment if abs(moment) < math.inf else None
    except (KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError):
        return None


def _contradictions(exif: Any, date: Date) -> dict[str, str]:
    """A time of GPS that no zone brings to the camera's, and an edit long before the capture: the clock was wrong."""
    contradicted: dict[str, str] = {}
    if (moment := _gps_time(exif)) is not None and date.contradicts(gps := Date(int(moment), 0, "second")):
        contradicted["gps"] = shown_date(gps)
    with suppress(ValueError):
        edited = clock(_text(exif.get(EDITED_AT)))
        if edited.until < date.utc and date.contradicts(edited):
            contradicted["edit"] = shown_date(edited)
    return contradicted


def from_sidecar(path: Path, name: str) -> Date | None:
    """A file beside the photo: JSON (Google Takeout's under each of its names), then XMP; the first with a date."""
    in_json, in_xmp = sidecar_names(path.name)
    for sidecar in map(path.with_name, in_json):
        try:
            value = json.loads(_small(sidecar))
            date = value.get("photoTakenTime", value.get("date"))
            if isinstance(date, str):
                return clock(date)
            seconds = seconds_of(date["timestamp"] if isinstance(date, dict) else date)
            if seconds in SENTINELS:
                continue
            seconds = seconds // 1000 if abs(seconds) >= MILLISECONDS else seconds
            clock(iso(seconds)[:19])  # no date: ValueError
            return Date(seconds, 0, "second")
        except (OSError, ValueError, KeyError, AttributeError, OverflowError, RecursionError):
            continue
    for sidecar in map(path.with_name, in_xmp):
        try:
            text = COMMENT.sub("", _small(sidecar))
        except OSError:
            continue
        for value in _dates_in_xmp(text):
            with suppress(ValueError):
                return clock(value)
    return None


def sidecar_names(name: str) -> tuple[list[str], list[str]]:
    """The names that the sidecar of a photo may have, JSON and XMP, in the order in which they count."""
    stem = Path(name).stem
    in_xmp = [f"{place}{end}" for end in (".xmp", ".XMP") for place in (name, stem)]
    return [*takeout_names(name), f"{stem}.json"], in_xmp


def _dates_in_xmp(text: str) -> Iterator[str]:
    """Values of the properties with dates, those that count first first: of attributes and elements, also where a value
    has qualifiers and stands in rdf:value, or is an item of a list [ISO 16684-1:2012, 7.7 to 7.9]."""
    for tag in DATES_IN_XMP:
        for match in islice(tag.finditer(text), MOST_DATES):
            name, attributes = match[2], match[3] or ""
            if name is None:
                yield match[1]
                continue
            inside = "" if attributes.endswith("/") else text[match.end() : match.end() + LONGEST_PROPERTY]
            inside = inside.partition(f"</{name}")[0]
            value = VALUE_IN_XMP.search(attributes) or VALUE_IN_XMP.search(inside)
            yield inside.partition("<")[0] if value is None else value[1]


def takeout_names(name: str) -> list[str]:
    """The names that Google Takeout gives to the sidecar of a photo, the exact one first.

    NAME.json (until 2024), NAME.supplemental-metadata.json; the name is cut to 51 characters with `.json`, so that any
    beginning of "supplemental-metadata" occurs, or none and a part of NAME. The counter of IMG(1).jpg may stand before
    `.json`. An edited photo has the sidecar of its original.

    >>> takeout_names("a(1).jpg")[:2]
    ['a(1).jpg.supplemental-metadata.json', 'a(1).jpg.json']
    """
    stem, dot, suffix = name.rpartition(".")
    bare, counter = match.groups() if (match := COUNTED.fullmatch(stem)) else (stem, "")
    originals = {bare: counter} | {part: counter for word in EDITED if (part := bare.removesuffix(word)) != bare}
    names = []
    for original, count in originals.items():
        forms = {(f"{original}{count}{dot}{suffix}", ""), (f"{original}{dot}{suffix}", count)}
        for title, after in sorted(forms, key=lambda form: form[1]):
            whole = f"{title}.{SUPPLEMENTAL}"
            cuts = [whole[:LONGEST_TITLE], title, *(whole[:end] for end in range(len(whole) - 1, len(title) + 1, -1))]
            names += [f"{cut}{after}.json" for cut in (*cuts, title[:LONGEST_TITLE])]
    return list(dict.fromkeys(names))


def _small(path: Path) -> str:
    with path.open("rb") as file:
        data = file.read(SIDECAR)
    return data.decode("utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig", "replace")


def from_file(path: Path, name: str) -> Date | None:
    return Date(int(path.stat().st_mtime), 0, "second")
