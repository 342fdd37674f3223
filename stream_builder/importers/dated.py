"""Columns of tables: times, times of labels, texts, paths of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from driftline.curate.core.errors import BadConfig, BadInput, MissingFile
from driftline.curate.core.outside.names import fault
from driftline.curate.core.outside.tables import read_parquet
from driftline.curate.core.times.dates import seconds_of
from driftline.curate.foreign import cells
from driftline.curate.foreign.cells import UNITS, not_seconds, per_second
from driftline.curate.foreign.delimited import csv_rows
from driftline.stream_builder.lazy_images import LazyImages, from_download
from driftline.stream_builder.step import NEVER

NO_TIME = ("", "nat", "nan", "inf", "null", "none", "never")  # texts, in lower case
YEARS = (1000, 2999)  # a column of such integers has years, of others seconds


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
        times = cells.parsed(column, row_of(0))
        return times.value if (times.form < cells.AS_NUMBER).all() else times_of(column.to_pylist(), row_of, unit)
    if unit != "auto":
        return times_of(column.to_pylist(), row_of, unit)
    values = column.to_numpy().astype(np.int64)
    units = values if like is None else like.to_numpy().astype(np.int64)
    if not len(units) or (units.min() >= YEARS[0] and units.max() <= YEARS[1]):
        return (values - 1970).astype("datetime64[Y]").astype("datetime64[s]").astype(np.int64)
    _check_seconds(units, row_of, int(values[0]) if len(values) else 0)
    return values // per_second(int(np.abs(units).max()))


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
