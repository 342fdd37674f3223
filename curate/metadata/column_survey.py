"""What the values of a table's columns are over all its rows: one rule a column, stated before any work."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal, get_args

from driftline.curate.core.errors import BadInput
from driftline.curate.core.outside.names import one_form
from driftline.curate.core.times.dates import DAY, last_second, precision_of, seconds_of

TimeUnit = Literal["auto", "year", "month", "day", "excel", "s", "ms", "us", "ns"]
TIMES = ("uploaded", "until", "taken")
SURVEYED = ("id", *TIMES, "label")
NUMBER = re.compile(r"[+-]?\d{1,24}(\.\d*)?")
WHOLE = re.compile(r"(-?\d+)\.0*")
ROUNDED = re.compile(r"[+-]?\d([.,]\d+)?E\+\d{2,3}", re.IGNORECASE)  # as spreadsheets write large numbers
EXACT = 2**53  # floats from here on have lost digits of whole numbers
EXCEL_1970 = 25_569  # days from Excel's day 0, 1899-12-30, to 1970
YEAR = 365 * 86_400
AFTER = 4_102_444_800  # the year 2100
NO_DATE = (0, -1, 2**31 - 1)
NULL_LIKE = {"nan", "null", "none", "na", "n/a", "#n/a", "\\n", "nil", "<na>", "undefined", "nat", "-", "--", "?", "."}
MOST = 0.5  # share of a column's times that cannot be seconds, from which on the column is refused
COARSE = ("year", "month", "day")
FEW = 10  # numbers that may all lie in 1970 where they look like nothing else
SHOWN = 10


def _calendar(number: float, form: str, length: int) -> int:
    text = str(number)
    if len(text) != length:
        raise ValueError(f"{text} is not of the form {form}")
    return int(datetime.strptime(text, form).replace(tzinfo=UTC).timestamp())


SECONDS: Mapping[str, Callable[[float], int]] = {
    "year": lambda n: _calendar(n, "%Y", 4),
    "month": lambda n: _calendar(n, "%Y%m", 6),
    "day": lambda n: _calendar(n, "%Y%m%d", 8),
    "excel": lambda n: round((n - EXCEL_1970) * 86_400),
    "s": math.floor,
    "ms": lambda n: math.floor(n / 1000) if isinstance(n, float) else n // 1000,
    "us": lambda n: math.floor(n / 10**6) if isinstance(n, float) else n // 10**6,
    "ns": lambda n: math.floor(n / 10**9) if isinstance(n, float) else n // 10**9,
}
"""unit → seconds UTC of a number; raises ValueError"""
WORDS = {
    "month": "months (YYYYMM)", "day": "days (YYYYMMDD)", "excel": "Excel days", "ms": "milliseconds",
    "us": "microseconds", "ns": "nanoseconds",
}  # fmt: skip
EARLIEST = {"month": 1800, "day": 1800, "excel": 1927, "ms": 1975, "us": 1975, "ns": 1975}
"""a number of a unit that lies before this year, or from 2100 on, does not look like it"""


def number_of(value: Any) -> int | float | None:
    """A number, or a text that is one without exponent, as an integer if it is whole; None: neither."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        return None
    if isinstance(value, str):
        if not NUMBER.fullmatch(value.strip()):
            return None
        head, _, tail = value.strip().partition(".")
        return int(head) if not tail.strip("0") else float(value)
    if isinstance(value, int):
        return value
    number = float(value)
    return None if not math.isfinite(number) else int(number) if number.is_integer() else number


def plain_number(value: Any) -> Any:
    """2.0 and "2.0" → "2"; anything else as it is."""
    if isinstance(value, float) and value.is_integer() and abs(value) < EXACT:
        return str(int(value))
    match = WHOLE.fullmatch(value.strip()) if isinstance(value, str) else None
    return value if match is None else match[1]


def is_nan(value: Any) -> bool:
    """Whether a value is the float that stands for a missing one."""
    return isinstance(value, float) and math.isnan(value)


@dataclass(frozen=True)
class Reading:
    """How the columns of a table are read."""

    units: Mapping[str, str] = field(default_factory=dict)
    """uploaded, taken → unit of their numbers; auto: years of four digits, else seconds"""
    plain: frozenset[str] = frozenset()
    """columns that are all numbers: their whole numbers are written without .0"""
    precision: Mapping[str, str] = field(default_factory=dict)
    """uploaded, taken → year, month or day, if all moments of the column are the first second of one"""
    notes: tuple[str, ...] = ()
    """sentences for people"""

    def cell(self, column: str, value: Any) -> Any:
        """A cell, or None if it is empty; a float that is not a number is an empty one of SURVEYED."""
        if column in self.plain or (column == "label" and isinstance(value, float)):
            value = plain_number(value)
        empty = value is None or value == "" or (column in SURVEYED and is_nan(value))
        return None if empty else value

    def span(self, column: str, value: Any) -> tuple[int, int]:
        """The first and the last second UTC that a cell may mean. Raises ValueError, OverflowError."""
        unit, number = self.units.get(column, "auto"), number_of(value)
        if unit == "auto" or number is None or (unit == "day" and len(str(number)) == 4):
            start, precision = seconds_of(value), precision_of(value)
        else:
            start = SECONDS[unit](number)
            precision = "day" if unit == "excel" and isinstance(number, int) else unit
        if precision not in COARSE:
            precision = self.precision.get(column, "")
        return start, last_second(start, precision)


AS_IT_IS = Reading()


class _Times:
    """The numbers of one column of times."""

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self.values = self.numbers = self.in_1970 = self.beyond = 0
        self.looks: Counter[str] = Counter()
        self.example: int | float = 0
        self.moments: set[int] = set()  # the first FEW different ones
        self.exact = 0
        self.finest = 0  # of the moments: a place in COARSE, or behind it

    def add(self, value: Any) -> None:
        number = number_of(value)
        if self.finest < len(COARSE):
            self._add_moment(value, number)
        if self.unit != "auto" or value is None or value == "" or number in NO_DATE:
            return
        self.values += 1
        if number is None:
            return
        if isinstance(number, int) and 1000 <= number <= 9999:
            return  # a year
        self.numbers += 1
        self.example = number if self.numbers == 1 else self.example
        in_1970, beyond = 0 <= number < YEAR, abs(number) >= AFTER
        self.in_1970 += in_1970
        self.beyond += beyond
        if in_1970 or beyond:
            self.looks.update(unit for unit in WORDS if _looks(number, unit))

    def _add_moment(self, value: Any, number: float | None) -> None:
        if value is None or value == "" or number in NO_DATE or precision_of(value) in COARSE:
            return
        with suppress(ValueError, OverflowError, OSError):
            moment = SECONDS["s" if self.unit == "auto" else self.unit](number) if number else seconds_of(value)
            date = datetime.fromtimestamp(moment, UTC)
            parts = (date.month > 1, date.day > 1, moment % DAY > 0)
            self.finest = max(self.finest, *(place for place, given in enumerate(parts, 1) if given), 0)
            self.exact += 1
            if len(self.moments) < FEW:
                self.moments.add(moment)

    @property
    def precision(self) -> str:
        """year, month or day if all moments are the first second of one; "": there are too few, or others."""
        if self.exact < FEW or self.finest == len(COARSE):
            return ""
        return COARSE[self.finest] if len(self.moments) > 1 else "day"

    def judged(self, column: str, table: str) -> str:
        """The unit of the column. Raises BadInput if its numbers as seconds are no plausible dates."""
        strange = self.in_1970 + self.beyond
        if self.numbers and self.looks["day"] == self.numbers:
            return "day"
        kinds = [WORDS[unit] for unit, _ in self.looks.most_common()]
        few = self.numbers < FEW or self.in_1970 < strange
        if self.unit != "auto" or not self.numbers or strange < MOST * self.values or (few and not kinds):
            return self.unit
        share = f"{strange / self.values:.0%}".replace("%", " %")
        where = "in 1970" if self.in_1970 >= self.beyond else "after 2100"
        raise BadInput(
            f"{table}: {column} lies {where} for {share} of {self.values:,} rows if {self.example} is in seconds.",
            f"Are these {' or '.join(kinds or list(WORDS.values()))}?",
            f"Set collection.time_unit to one of {', '.join(get_args(TimeUnit)[1:])}.",
        )


def _looks(number: float, unit: str) -> bool:
    try:
        year = datetime.fromtimestamp(SECONDS[unit](number), UTC).year
    except (ValueError, OverflowError, OSError):
        return False
    return EARLIEST[unit] <= year < 2100


def survey(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str], unit: str, table: str) -> Reading:
    """Look at every row: column of the table → value. columns: column of the collection → of the table. unit: of
    numbers of times, of TimeUnit. table: names it in messages. Raises BadInput for numbers that are no plausible times,
    and for ids that a spreadsheet rounded."""
    times = {name: _Times(unit) for name in TIMES if name in columns}
    labels: Counter[Any] = Counter()
    ids = whole_ids = other_ids = 0
    example = ""
    for number, values in enumerate(rows, 1):
        for name, column_times in times.items():
            column_times.add(values.get(columns[name]))
        label = values.get(columns["label"]) if "label" in columns else None
        if isinstance(label, str | int | float | bool) and label != "" and not is_nan(label):
            labels[label.strip() if isinstance(label, str) else str(plain_number(label))] += 1
        value = values.get(columns["id"]) if "id" in columns else None
        if value is None or value == "" or is_nan(value):
            continue
        text = str(value).strip()
        if ROUNDED.fullmatch(text) or (isinstance(value, float) and EXACT <= abs(value) < math.inf):
            raise BadInput(
                f"{table}: row {number:,} has the id {text}: a spreadsheet or float column rounded it.",
                "Expected ids with all their digits, since several photos may have the same rounded id.",
                "Export the table again with this column as text, or choose another column for collection.columns.id.",
            )
        ids += 1
        if WHOLE.fullmatch(text):
            whole_ids, example = whole_ids + 1, example or text
        elif not text.isdecimal():
            other_ids += 1
    units = {name: column_times.judged(name, table) for name, column_times in times.items()}
    notes = [f"{name} is read as {WORDS['day']}." for name, u in units.items() if u == "day" and unit == "auto"]
    coarse = {name: column_times.precision for name, column_times in times.items() if units[name] not in COARSE}
    coarse = {name: precision for name, precision in coarse.items() if precision}
    notes += [
        f"{name} is always the first second of a {kind}: it is read as the {kind}." for name, kind in coarse.items()
    ]
    plain = set()
    if whole_ids and not other_ids:
        plain.add("id")
        notes.append(f".0 is removed from {whole_ids:,} of {ids:,} ids, such as {example}: they are whole numbers.")
    if labels and all(number_of(label) is not None for label in labels if label.casefold() not in NULL_LIKE):
        plain.add("label")
        labels = _merged(labels)
    return Reading(units, frozenset(plain), coarse, (*notes, *_label_notes(labels)))


def _merged(labels: Counter[Any]) -> Counter[Any]:
    merged: Counter[Any] = Counter()
    for label, photos in labels.items():
        merged[plain_number(label)] += photos
    return merged


def _label_notes(labels: Counter[Any]) -> list[str]:
    """Labels that may stand for none, and labels that differ only in case, blanks or the form of a number."""
    notes = [
        f"`{label}` is a label of {photos:,} photos; if it stands for no label, empty these cells."
        for label, photos in labels.most_common()
        if label.casefold() in NULL_LIKE
    ]
    alike: dict[str, list[str]] = {}
    for label in labels:
        number = re.fullmatch(r"0*(\d+)(?:\.0*)?", label)
        key = number[1] if number else " ".join(one_form(label).casefold().split())
        alike.setdefault(key, []).append(label)
    for group in alike.values():
        if len(group) > 1:
            names = ", ".join(f"`{label}` ({labels[label]:,} photos)" for label in sorted(group))
            notes.append(f"{names} are different labels.")
    return notes if len(notes) <= SHOWN else [*notes[:SHOWN], f"{len(notes) - SHOWN:,} more labels are like these."]
