"""Times in cells of strangers' tables, whole columns of Arrow at a time: one unit, format and meaning a column."""

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from driftline.curate.core.errors import BadInput
from driftline.curate.core.times.dates import SENTINELS, ZONES
from driftline.curate.foreign.cells import Ints, flat, is_number, shown, text

Codes = npt.NDArray[np.int8]
STAMP = r"^[+-]?(\d{1,18}|[1-8]\d{18})(\.\d+)?$"
ISO = r"^\d{4}-\d\d(-\d\d([T ]\d\d(:?\d\d(:?\d\d)?)?(Z|[+-]\d\d(:?\d\d)?)?)?)?$"
ZONED = r"[T ]\d.*(Z|[+-]\d\d(:?\d\d)?)$"
WHOLE_DAY = r"^(\d{4}-\d\d-\d\d|\d\d?\.\d\d?\.\d{4})$"
PLAIN, WITH_ZONE, AS_NUMBER, NO_TIME, UNREADABLE = range(5)  # how a time is written
SECOND, DAY, MONTH, YEAR = range(4)  # how precise it is
WRITTEN = {"HIcXs": SECOND, "djx": DAY, "mbB": MONTH}  # letters of a format
CALENDARS = {"year": YEAR, "month": MONTH, "day": DAY}
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
LATEST, EARLY = 10**11, 10**7  # seconds: larger numbers are of a smaller unit; of that, none lies so near to 1970
FAR = SENTINELS[2:]
YEARS = (1000, 2999)  # whole numbers that are years
CALENDAR = (-30_610_224_000, 253_370_764_800)  # seconds of the years 1000 to 9998
MOST = 0.01  # share of a column's stated times that may be unreadable


class Times(NamedTuple):
    """A column of N times, or a part of one."""

    value: Ints
    """(N,) seconds UTC, of numbers as they are until the unit of the whole column is known; 0: none"""
    form: Codes
    """(N,) how each is written, of `PLAIN` … `UNREADABLE`"""
    precision: Codes
    """(N,) of `SECOND` … `YEAR`"""

    def slice(self, first: int, size: int) -> "Times":
        """Some rows."""
        rows = slice(first, first + size)
        return Times(self.value[rows], self.form[rows], self.precision[rows])

    @property
    def last(self) -> Ints:
        """(N,) the last second that each may be."""
        last = self.value + np.where(self.precision == DAY, 86_399, 0)
        for precision, unit in ((MONTH, "M"), (YEAR, "Y")):
            rows = self.precision == precision
            after = self.value[rows].astype("datetime64[s]").astype(f"datetime64[{unit}]") + 1
            last[rows] = after.astype("datetime64[s]").astype(np.int64) - 1
        return last

    def unit(self, name: str, way_out: str = "") -> str:
        """The unit of the column's numbers that are no years, by the largest. Raises BadInput if they look like dates,
        or are of two units."""
        numbers = self.value[(self.form == AS_NUMBER) & ~np.isin(self.value, SENTINELS)]
        numbers = numbers[(numbers < YEARS[0]) | (numbers > YEARS[1])]
        factor = per_second(numbers, name, way_out)
        if len(numbers) and factor == 1 and ((looks := not_seconds(numbers)) or np.abs(numbers).max() < 365 * 86_400):
            looks = f" It looks like {looks}." if looks else ""
            problem = f"{name} is {numbers[0]}; as seconds, all rows would lie in 1970.{looks}"
            expected = "Expected dates, years, or seconds, milliseconds … since 1970."
            raise BadInput(problem, expected, way_out or "Convert the column to dates.")
        return next(unit for unit, parts in UNITS.items() if parts == factor)

    def dated(self, unit: str) -> "Times":
        """In seconds, with numbers of a unit of `UNITS` or `CALENDARS`; from 1000 to 2999 they are years. Forms
        and precisions are changed in place."""
        value, form, precision = self.value.copy(), self.form, self.precision
        form[(form == AS_NUMBER) & np.isin(value, SENTINELS)] = NO_TIME
        numbers = form == AS_NUMBER
        years = numbers & (value >= YEARS[0]) & (value <= YEARS[1]) & (unit in (*UNITS, "day"))
        _set_dates(value, form, precision, years, "year")
        numbers &= ~years
        if unit in CALENDARS:
            _set_dates(value, form, precision, numbers, unit)
        elif unit == "excel":
            value[numbers] -= 25_569 * 86_400
            precision[numbers & (value % 86_400 == 0)] = DAY
        else:
            value[numbers] //= UNITS[unit]
        form[(form < NO_TIME) & (precision <= DAY) & (value <= ZONES) & (value >= -ZONES)] = NO_TIME
        form[(form < NO_TIME) & _beyond(value)] = UNREADABLE
        value[form >= NO_TIME] = 0
        return Times(value, form, precision)


class TimeColumn:
    """A column of times that comes in parts: one unit holds for the numbers of all.

    name: in messages. unit: of numbers, of `UNITS` or `CALENDARS`; auto: as `Times.unit` finds. way_out: for messages.
    written: the format of texts, as of `parsed`.
    """

    def __init__(self, name: str, unit: str = "auto", way_out: str = "", written: str | None = None) -> None:
        self.name, self.unit, self.way_out, self.written = name, unit, way_out, written
        self._parts: list[Times] = []
        self._rows = 0
        self._first = ("", 0)

    def add(self, column: pa.ChunkedArray) -> None:
        """The next rows."""
        times = parsed(column, self.name, self.unit, self.written)
        times.form[(times.form < AS_NUMBER) & _beyond(times.value)] = UNREADABLE
        if not self._first[1] and (bad := times.form == UNREADABLE).any():
            place = int(bad.argmax())
            self._first = (str(shown(column[place]))[:60], self._rows + place + 1)
        self._parts.append(times)
        self._rows += len(column)

    def whole(self, most: float = MOST) -> tuple[Times, list[str]]:
        """All rows in seconds, and a sentence if some state what cannot be read, or if only some have a zone. Raises
        BadInput as `Times.unit`, and if more than one cell, and more than the share `most` of what is stated, is
        unreadable, or all of it."""
        parts = self._parts or [Times(np.zeros(0, np.int64), *[np.zeros(0, np.int8)] * 2)]
        numbers = Times(*(np.concatenate(of) for of in zip(*parts, strict=True)))
        self._parts.clear()
        if self.unit == "auto":
            self.unit = numbers.unit(self.name, self.way_out)
        times = numbers.dated(self.unit)
        bad = times.form == UNREADABLE
        count, stated = int(bad.sum()), int((times.form != NO_TIME).sum())
        text, row = self._first if self._first[1] or not count else (str(numbers.value[bad][0]), int(bad.argmax()) + 1)
        if count > max(min(1, stated - 1), most * stated):
            problem = f"{self.name} is {text!r} in row {row:,}, and {count:,} of {stated:,} cannot be read."
            expected = "Expected dates such as 2026-07-31, or seconds since 1970."
            raise BadInput(problem, expected, self.way_out or "Rewrite the column.")
        said = []
        if count:
            first = f"the first is {text!r} in row {row:,}"
            said = [f"{self.name} is stated and cannot be read in {count:,} rows, {first}."]
        zoned, plain = times.form == WITH_ZONE, (times.form == PLAIN) & (times.precision == SECOND)
        if zoned.any() and plain.any():
            few = f"in {plain.sum():,} rows, the first is row {plain.argmax() + 1:,}, and with one in {zoned.sum():,}"
            said.append(f"{self.name} is without a zone {few}: where there is none, it is UTC.")
        return times, said


def parsed(column: pa.ChunkedArray, name: str, unit: str = "auto", written: str | None = None) -> Times:
    """The times of a column, or of a part of it: numbers wait for `Times.dated`. written: the format of all texts, such
    as %d/%m/%Y; None: the forms that have one meaning."""
    column = flat(column, name)
    kind, second = column.type, np.zeros(len(column), np.int8)
    scale = 86_400 if unit == "excel" else 1
    if kind == pa.string():
        return _of_texts(text(column, name), scale) if written is None else _of_format(text(column, name), written)
    if is_number(kind):
        return Times(*_of_numbers(column, scale), second)
    value, form = np.zeros(len(column), np.int64), UNREADABLE
    if pa.types.is_date(kind):
        value = _filled(column.cast(pa.timestamp("s" if pa.types.is_date32(kind) else "ms")))
        value, form = value // (1 if pa.types.is_date32(kind) else 1000), PLAIN
    elif pa.types.is_timestamp(kind):  # its zone by its type: a name need not be UTF-8
        value, form = _filled(column) // UNITS[kind.unit], PLAIN if kind == pa.timestamp(kind.unit) else WITH_ZONE
    forms = np.where(column.is_null(), NO_TIME, form).astype(np.int8)
    return Times(value, forms, second + np.int8(DAY * pa.types.is_date(kind)))


def span(value: Any) -> tuple[int, int]:
    """The first and the last second UTC of a single time, such as 2026-07. Raises ValueError."""
    times = parsed(pa.chunked_array([pa.array([value])]), "the time").dated("s")
    if times.form[0] >= NO_TIME:
        raise ValueError(f"{value!r} is not a time")
    return int(times.value[0]), int(times.last[0])


def per_second(numbers: Ints, name: str, way_out: str = "") -> int:
    """How many of its unit are a second, of a column of numbers, by the largest. Raises BadInput for two units."""
    size = np.abs(numbers)
    factor: int = 10 ** (3 * sum(int(size.max(initial=0)) >= LATEST * 1000**k for k in range(3)))
    if factor > 1 and (few := size // factor < EARLY).any():
        few = few if 2 * few.sum() <= len(few) else ~few
        counts = f"{int(few.sum()):,} of {len(few):,} are such as {numbers[few.argmax()]}"
        problem = f"{name} has numbers of two units: {counts}, the others such as {numbers[few.argmin()]}."
        raise BadInput(problem, "Expected one unit.", way_out or "Rewrite the column.")
    return factor


def not_seconds(values: Ints) -> str:
    """What whole numbers look like that are no seconds since 1970, if all look so; else ""."""
    day, month, year = values % 100, values // 100 % 100, values // 10_000

    def within(part: Ints, low: int, high: int) -> bool:
        return bool(((low <= part) & (part <= high)).all())

    if within(day, 1, 31) and within(month, 1, 12) and within(year, 1800, 2100):
        return "days, YYYYMMDD"
    if within(day, 1, 12) and within(values // 100, 1800, 2100):
        return "months, YYYYMM"
    return "days, since 1970 or of a spreadsheet (since 1899-12-30)" if within(values, 5_000, 80_000) else ""


def _beyond(value: Ints) -> npt.NDArray[np.bool_]:
    return (value < CALENDAR[0]) | (value >= CALENDAR[1])


def _filled(column: pa.ChunkedArray) -> Ints:
    return np.asarray(pc.fill_null(column.cast(pa.int64()), 0).to_numpy(), np.int64)


def _set_dates(value: Ints, form: Codes, precision: Codes, rows: npt.NDArray[np.bool_], unit: str) -> None:
    """Numbers such as 2019, 201903 or 20190304 in some rows, as seconds."""
    number = value[rows]
    year, month, day = number, np.ones_like(number), np.ones_like(number)
    if unit != "year":
        year, month = number // 100, number % 100
    if unit == "day":
        year, month, day = number // 10_000, number // 100 % 100, number % 100
    good = (year >= YEARS[0]) & (year <= 9998) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    months = np.where(good, 12 * (year - 1970) + month - 1, 0).astype("datetime64[M]")
    days = months.astype("datetime64[D]") + np.where(good, day - 1, 0)
    good &= days.astype("datetime64[M]") == months
    value[rows] = days.astype("datetime64[s]").astype(np.int64)
    form[rows], precision[rows] = np.where(good, PLAIN, UNREADABLE), CALENDARS[unit]


def _of_numbers(column: pa.ChunkedArray, scale: int) -> tuple[Ints, Codes]:
    """Whole numbers, of `scale` for each 1. A year with a fraction is none."""
    if pa.types.is_signed_integer(column.type) and scale == 1:
        return _filled(column), np.where(column.is_null(), NO_TIME, AS_NUMBER).astype(np.int8)
    number = pc.fill_null(column.cast(pa.float64(), safe=False), np.nan).to_numpy()
    whole = np.floor(number * scale)
    with np.errstate(invalid="ignore"):
        odd = (number != np.floor(number)) & (number > YEARS[0]) & (number < YEARS[1]) & (scale == 1)
        odd |= np.abs(whole) >= 2.0**62
    form = np.where(np.isnan(number), NO_TIME, np.where(odd, UNREADABLE, AS_NUMBER)).astype(np.int8)
    return np.where(form == AS_NUMBER, whole, 0).astype(np.int64), form


def _of_texts(cells: pa.ChunkedArray, scale: int) -> Times:
    """The fast ways first: a column of one form is converted at once."""
    form = np.where(cells.is_null(), NO_TIME, UNREADABLE).astype(np.int8)
    value, precision = np.zeros(len(cells), np.int64), np.zeros(len(cells), np.int8)

    def rows_of(chosen: pa.ChunkedArray) -> Ints:
        return np.flatnonzero(np.asarray(pc.fill_null(chosen, False)) & (form == UNREADABLE))

    def fill(chosen: pa.ChunkedArray, convert: Callable[[pa.ChunkedArray], pa.ChunkedArray], how: int) -> None:
        if len(rows := rows_of(chosen)):
            times = convert(cells.take(pa.array(rows)))
            value[rows], form[rows] = _filled(times), np.where(times.is_null(), UNREADABLE, how)

    if len(rows := rows_of(pc.match_substring_regex(cells, STAMP))):
        some = cells.take(pa.array(rows))
        kind = pa.float64() if pc.any(pc.match_substring(some, ".")).as_py() else pa.int64()
        value[rows], form[rows] = _of_numbers(pc.replace_substring(some, "+", "").cast(kind), scale)
    if len(rows) + cells.null_count == len(cells):
        return Times(value, form, precision)
    with suppress(pa.ArrowInvalid):  # all are ISO 8601 without a zone, or Arrow refuses the first other one
        value, form = _filled(cells.cast(pa.timestamp("s"))), np.where(form == NO_TIME, NO_TIME, PLAIN).astype(np.int8)
        precision[np.asarray(pc.fill_null(pc.equal(pc.utf8_length(cells), 10), False))] = DAY
        return Times(value, form, precision)
    cells = pc.replace_substring_regex(cells, r"(:\d\d)[.,]\d+", r"\1")  # parts of a second
    cells = pc.replace_substring_regex(cells, " ?(UTC|GMT)$", "Z")
    numbers = pc.match_substring_regex(cells, STAMP)
    is_iso, zoned = pc.match_substring_regex(cells, ISO), pc.match_substring_regex(cells, ZONED)
    fill(pc.and_(is_iso, zoned), lambda some: _iso(some, "UTC"), WITH_ZONE)
    fill(is_iso, lambda some: _iso(some, None), PLAIN)
    fill(pc.invert(numbers), lambda some: _each(some, _written), PLAIN)
    precision[np.asarray(pc.fill_null(pc.match_substring_regex(cells, WHOLE_DAY), False))] = DAY
    precision[np.asarray(pc.fill_null(pc.equal(pc.utf8_length(cells), 7), False)) & (form == PLAIN)] = MONTH
    return Times(value, form, precision)


def _of_format(cells: pa.ChunkedArray, written: str) -> Times:
    seconds = _each(cells, lambda cell: datetime.strptime(cell, written))
    form = np.where(cells.is_null(), NO_TIME, np.where(seconds.is_null(), UNREADABLE, PLAIN)).astype(np.int8)
    precision = next((how for letters, how in WRITTEN.items() if re.search(f"%[{letters}]", written)), YEAR)
    return Times(_filled(seconds), form, np.full(len(cells), precision, np.int8))


def _iso(cells: pa.ChunkedArray, zone: str | None) -> pa.ChunkedArray:
    full = pc.if_else(pc.equal(pc.utf8_length(cells), 7), pc.binary_join_element_wise(cells, "01", "-"), cells)
    try:
        return full.cast(pa.timestamp("s", zone))
    except pa.ArrowInvalid:  # one of them is in no calendar
        return _each(full, datetime.fromisoformat)


def _each(cells: pa.ChunkedArray, convert: Callable[[str], datetime]) -> pa.ChunkedArray:
    """(N,) seconds UTC of each different text; null: it is none."""
    coded = cells.combine_chunks().dictionary_encode()
    seconds: list[int | None] = []
    for cell in coded.dictionary.to_pylist():
        try:
            moment = convert(cell)
            seconds.append(int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() // 1))
        except (ValueError, OverflowError):
            seconds.append(None)
    return pa.chunked_array([pa.array(seconds, pa.int64()).take(coded.indices)])


def _written(cell: str) -> datetime:
    """A date with points, or ISO 8601 in one of its rarer forms. Raises ValueError."""
    for form in ("", " %H:%M", " %H:%M:%S"):
        with suppress(ValueError):
            return datetime.strptime(cell, f"%d.%m.%Y{form}")  # the day is first wherever points are written
    return datetime.fromisoformat(cell)
