"""Labelled samples with dates → a stream with one step per year, month, week or day, or N steps of equal size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from driftline.curate.core.errors import BadConfig, BadInput, MissingFile
from driftline.curate.core.group_split import draw_sides
from driftline.curate.core.outside.names import fault
from driftline.curate.core.outside.tables import csv_rows, read_parquet
from driftline.curate.core.seeding import rng_for, time_order
from driftline.curate.core.times.calendar_periods import CALENDAR, count_of
from driftline.curate.core.times.dates import seconds_of
from driftline.curate.core.times.number_times import UNITS, not_seconds, per_second
from driftline.stream_builder.lazy_images import LazyImages, from_download
from driftline.stream_builder.splitting import equal_parts, numbered
from driftline.stream_builder.step import NEVER
from driftline.stream_builder.stream import SPLITS, Array, Split, Step, Stream, pick
from driftline.stream_builder.ties import drawn


@dataclass
class Dated:
    """Samples in any order."""

    name: str
    """becomes the stream's name"""
    x: Any
    """(N, …) samples, as in `Split`"""
    labels: Sequence[str]
    """(N,) names of classes"""
    ids: Sequence[str]
    """(N,) unique in the stream"""
    time: npt.NDArray[np.int64]
    """(N,) seconds UTC"""
    side: Sequence[str] | None = None
    """(N,) train, val or test; None: a test split is drawn"""
    group: Sequence[str] | None = None
    """(N,) samples with the same name are on one side; "" is a group of its own; None: not known"""
    classes: Sequence[str] | None = None
    """class names in the order of their labels; None: the labels that occur, sorted"""
    label_time: npt.NDArray[np.int64] | None = None
    """(N,) seconds UTC when labels come, as in `Split`; None: with their samples"""


@dataclass(frozen=True)
class Cut:
    """How dates become steps, and which samples are test samples if the source does not say."""

    period: str = "year"
    """year, month, week (from Monday on), day, or a number of steps of about equal size; equal times are in one step"""
    test_share: float = 0.3
    """share of each step and class"""
    seed: int = 0
    """random seed of the test split, and of the order of equal times"""


def stream_of(data: Dated, cut: Cut, facts: Mapping[str, Any]) -> Stream:
    """Steps and samples in order of time; the cut's seed draws the order of equal times. The order of `data` changes
    nothing. Raises BadConfig, BadInput naming the first id that is there twice."""
    if not 0 <= cut.test_share < 1:
        raise BadConfig(f"--test-share is {cut.test_share}.", "Expected a share from 0 to below 1.")
    ids = np.array(data.ids, np.str_)
    unique, times = np.unique(ids, return_counts=True)
    if (times > 1).any():
        raise BadInput(f"{data.name}: the id {unique[times.argmax()]!r} is there {times.max()} times.", "Expected one.")
    names = sorted(set(data.labels)) if data.classes is None else list(data.classes)
    number = {name: i for i, name in enumerate(names)}
    order = time_order(data.time, ids, cut.seed)
    ids, time = ids[order], data.time[order]
    y = np.array([number[name] for name in data.labels], np.int64)[order]
    step_of, step_names = steps_of(time, cut.period)
    group = None if data.group is None else numbered(np.array(data.group, np.str_)[order])
    notes = {}
    if data.side is None:
        alone = ids if group is None else group
        test = draw_sides((step_of, y), alone, cut.test_share, rng_for(cut.seed, "test"))
        side = np.where(test, "test", "train")
        notes["made"] = f"a test split of {cut.test_share:.0%} of every step and class, seed {cut.seed}"
    else:
        side = np.array(data.side, np.str_)[order]
    steps = []
    for index, name in enumerate(step_names):
        of_step = np.flatnonzero(step_of == index)
        splits = {}
        for part in SPLITS:
            rows = of_step[side[of_step] == part]
            if len(rows):
                groups = None if group is None else group[rows]
                late = None if data.label_time is None else data.label_time[order[rows]]
                x = pick(data.x, order[rows])
                splits[part] = Split(x, y[rows], ids[rows], time[rows], groups, label_time=late)
        steps.append(Step(index, name, splits))
    facts = {**facts, "period": cut.period, **drawn(cut.seed), **notes}
    return Stream(data.name, steps, names, facts=facts)


NO_TIME = ("", "nat", "nan", "inf", "null", "none", "never")  # texts, in lower case
YEARS = (1000, 2999)  # a column of such integers has years, of others seconds


def steps_of(time: npt.NDArray[np.int64], period: str) -> tuple[Array, list[str]]:
    """(N,) number of the step of each sample, and the steps' names."""
    if (parts := count_of(period)) is None:
        return calendar_steps(time, period)
    step = equal_parts(time, parts)
    first = [int(time[step == i].min()) for i in range(int(step.max()) + 1)]
    names = [str(np.datetime64(t, "s").astype("datetime64[D]")) for t in first]
    return step, names if len(set(names)) == len(names) else [str(i) for i in range(len(names))]


def calendar_steps(time: npt.NDArray[np.int64], period: str) -> tuple[Array, list[str]]:
    """(N,) number of the year, month, week or day of each sample, in UTC, and their names; a week's is its Monday."""
    dates = time.astype("datetime64[s]").astype("datetime64[D]")
    if period == "week":
        dates = dates - (dates.astype(np.int64) + 3) % 7  # the epoch is a Thursday
    else:
        dates = dates.astype(f"datetime64[{CALENDAR[period]}]")
    values, step = np.unique(dates, return_inverse=True)
    return step, [str(value) for value in values]


def times_of(values: Sequence[Any], what: Callable[[int], str], unit: str = "auto") -> npt.NDArray[np.int64]:
    """(N,) seconds UTC of times of any kind: dates, years, ISO 8601 text with or without zone, numbers since 1970.

    what: names a row, for messages. unit: of numbers; auto: from the largest one of the column. Raises BadInput naming
    the first row that has no time.
    """
    if unit != "auto" and unit not in dict(UNITS):
        raise BadConfig(f"--time-unit is {unit!r}.", f"Expected auto, {', '.join(dict(UNITS))}.")
    seconds = np.zeros(len(values), np.int64)
    numbers: list[int] = []
    for row, value in enumerate(values):
        try:
            if value is None or value == "":
                raise ValueError("empty")
            text = value.strip() if isinstance(value, str) else value
            seconds[row] = seconds_of(text)
        except (ValueError, OverflowError):
            raise BadInput(
                f"{what(row)}: the time is {str(value)[:60]!r}.",
                "Expected a date, a year, ISO 8601 or seconds since 1970 in every row.",
            ) from None
        if isinstance(text, int | float) or (isinstance(text, str) and text.lstrip("-").isdecimal()):
            numbers.append(row)
    if len(numbers) == len(values) and unit == "auto" and not all(len(str(value).strip()) == 4 for value in values):
        _check_seconds(seconds, what, int(seconds[0]))
    if numbers:
        factor = per_second(int(np.abs(seconds[numbers]).max()), unit)
        seconds[numbers] = seconds[numbers] // factor
    return seconds


def seconds_of_column(
    column: pa.ChunkedArray, row_of: Callable[[int], str], like: pa.ChunkedArray | None = None, unit: str = "auto"
) -> npt.NDArray[np.int64]:
    """(N,) seconds UTC of a column of times of any kind: as `times_of`, and a column of whole numbers from 1000 to 2999
    has years. row_of: names a row, for messages. like: whole numbers in the same unit, which decide it in place of the
    column's own. unit: as for `times_of`. Raises BadInput for a row without time, and for numbers that are no
    seconds."""
    if column.null_count:
        empty = pc.index(pc.is_null(column), True).as_py()
        raise BadInput(f"{row_of(empty)}: time is empty.", "Expected a value in every row.")
    if not pa.types.is_integer(column.type):
        moments = _moments(column)
        return times_of(column.to_pylist(), row_of, unit) if moments is None else moments
    if unit != "auto":
        return times_of(column.to_pylist(), row_of, unit)
    values = column.to_numpy().astype(np.int64)
    units = values if like is None else like.to_numpy().astype(np.int64)
    if not len(units) or (units.min() >= YEARS[0] and units.max() <= YEARS[1]):
        return (values - 1970).astype("datetime64[Y]").astype("datetime64[s]").astype(np.int64)
    _check_seconds(units, row_of, int(values[0]) if len(values) else 0)
    return values // per_second(int(np.abs(units).max()))


def _moments(column: pa.ChunkedArray) -> npt.NDArray[np.int64] | None:
    """As `times_of`, of a column without gaps whose type is a time or which is ISO 8601 text of one form, a hundred
    times as fast; None for others."""
    text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    kinds = [pa.timestamp("s"), pa.timestamp("s", "UTC")] if text else [pa.timestamp("s")]
    if pa.types.is_timestamp(column.type):
        zone = column.type.tz and "UTC"  # it is stored in UTC, and its own zone may not be known here
        column = pc.floor_temporal(column.cast(pa.timestamp(column.type.unit, zone)), unit="second")
        kinds = [pa.timestamp("s", zone)]
    elif not text and not pa.types.is_date(column.type):
        return None
    for kind in kinds:
        with suppress(pa.ArrowException):
            return np.asarray(column.cast(kind).cast(pa.int64()).to_numpy(), np.int64)
    return None


def _check_seconds(values: npt.NDArray[np.int64], row_of: Callable[[int], str], first: int) -> None:
    """Raise BadInput for whole numbers that all look like something else than seconds. first: the column's first."""
    if looks := not_seconds(values):
        raise BadInput(
            f"{row_of(0)}: the time is {first}; as seconds, all rows would lie in 1970. It looks like {looks}.",
            "Expected dates, years, or seconds, milliseconds … since 1970.",
            "Convert the column to dates.",
        )


def label_times(
    column: pa.ChunkedArray,
    times: pa.ChunkedArray,
    seconds: npt.NDArray[np.int64],
    row_of: Callable[[int], str],
    unit: str = "auto",
) -> npt.NDArray[np.int64]:
    """(N,) seconds UTC when labels come; `NEVER` where the column has no time: null, NaT, NaN, infinity, or a text of
    `NO_TIME`. times: the column with the times of their samples, whose unit holds for numbers here, and (N,) seconds
    of it. unit: that unit, if it was named. Raises BadInput naming the first row that has no such value, or one before
    its sample's time."""
    none: Any = None
    if pa.types.is_floating(column.type):
        none = pc.or_(pc.is_nan(column), pc.equal(column, np.inf))
    elif pa.types.is_integer(column.type):
        none = pc.equal(column, NEVER)
    elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        none = pc.is_in(pc.utf8_lower(pc.utf8_trim_whitespace(column)), pa.array(NO_TIME, column.type))
    column = column if none is None else pc.if_else(none, pa.scalar(None, column.type), column)
    rows, there = np.flatnonzero(column.is_valid().to_numpy()), column.drop_null()
    numbers = pa.types.is_integer(times.type)
    if numbers and pa.types.is_floating(there.type):  # pandas has whole numbers beside NaN as floats
        with suppress(pa.ArrowInvalid):
            there = pc.ceil(there).cast(pa.int64())
    late = np.full(len(seconds), NEVER)
    like = times if numbers and pa.types.is_integer(there.type) else None
    late[rows] = seconds_of_column(there, lambda row: f"{row_of(int(rows[row]))}, label_time", like, unit)
    if (early := late < seconds).any():
        row = int(early.argmax())
        problem = f"{row_of(row)}: label_time is {column[row].as_py()}, and its sample's time is {times[row].as_py()}."
        raise BadInput(problem, "Expected the sample's time or a later one; no value for a label that never comes.")
    return late


def table_of(path: Path) -> pa.Table:
    """A CSV or Parquet table; cells of CSV files are text. Raises MissingFile, BadInput."""
    if path.suffix == ".parquet":
        return read_parquet(path)
    if not path.is_file():
        raise MissingFile(f"There is no file {path}.", "Expected a CSV or Parquet table.")
    rows = [cells for _, cells in csv_rows(path, [], "Expected a CSV table with a header.")]
    if not rows:
        raise BadInput(f"{path} is empty.", "Expected one row a sample.")
    return pa.table({name: [row[name] for row in rows] for name in rows[0]})


def column_of(table: pa.Table, path: Path, column: str | None, usual: Sequence[str], option: str) -> str:
    """The name of a column: as given, or the first usual one. Raises BadInput."""
    names = table.column_names
    candidates = [column] if column else [name for name in usual if name in names]
    if not candidates or candidates[0] not in names:
        wanted = repr(column) if column else " or ".join(usual)
        raise BadInput(f"{path} has no column {wanted}.", f"It has {', '.join(names)}.", f"Use {option} COLUMN.")
    if names.count(candidates[0]) > 1:
        raise BadInput(f"{path} has more than one column {candidates[0]!r}.", "Expected one.")
    return candidates[0]


def texts_of(values: Sequence[Any], what: Callable[[int], str], name: str) -> list[str]:
    """The values as text. Raises BadInput naming the first row that has none."""
    if lacking := [row for row, value in enumerate(values) if value is None or str(value).strip() == ""]:
        raise BadInput(f"{what(lacking[0])}: {name} is empty.", f"Expected one in every row; {len(lacking)} lack it.")
    return [str(value) for value in values]


def images_of(root: Path, names: Sequence[str], size: int, source: Path) -> LazyImages:
    """Image files below `root`. Raises MissingFile with the number of files that are not there, and BadInput for a name
    that leaves the folder. source: what names the files."""
    for name in names:
        if why := next((why for part in name.split("/") if (why := fault(part))), ""):
            raise BadInput(f"{source} names the file {name[:200]!r}: {why}.", f"Expected a file below {root}.")
    return from_download([root / name for name in names], size, source)
