"""Columns of tables: times, times of labels, texts, paths of images."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from driftline.curate.core.errors import BadConfig, BadInput, MissingFile
from driftline.curate.core.times.dates import SENTINELS
from driftline.curate.foreign import cells, time_cells
from driftline.curate.foreign.cells import NO_LABEL, NOTHING
from driftline.curate.foreign.json_lines import JsonLines, text_rows
from driftline.curate.foreign.limits import RATIO, UNPACKED
from driftline.curate.foreign.names import column_once, fault
from driftline.curate.foreign.tables import arrow_of, is_parquet, read_parquet, readable
from driftline.curate.foreign.time_cells import UNITS, YEARS
from driftline.stream_builder.lazy_images import LazyImages, from_files
from driftline.stream_builder.rows import labelled
from driftline.stream_builder.step import NEVER, Labels

FEW = 100  # cells that are tried first
Seconds = npt.NDArray[np.int64]
RowOf = Callable[[int], str]  # names a row, for messages
EXPECTED = "Expected a date, a year, ISO 8601 or seconds since 1970 in every row."


def times_of(
    column: pa.ChunkedArray, row_of: RowOf, unit: str = "auto", like: pa.ChunkedArray | None = None
) -> Seconds:
    """(N,) seconds UTC, as `TimeColumn` reads them. Whole numbers may be small, too, as places in an order are.

    unit: of numbers; auto: from the largest one of the column, or of `like`. Raises BadInput naming the first row
    without time, and for numbers that are no seconds.
    """
    if unit not in ("auto", *UNITS):
        raise BadConfig(f"--time-unit is {unit!r}.", f"Expected auto, {', '.join(UNITS)}.")
    empty = cells.is_nothing(column)
    if pc.any(empty).as_py():
        raise BadInput(f"{row_of(pc.index(empty, True).as_py())}: time is empty.", EXPECTED)
    if column.type in cells.TEXTS:
        with suppress(pa.ArrowInvalid):
            column = column.cast(pa.int64())
    if pa.types.is_integer(column.type):
        values = column.to_numpy().astype(np.int64)
        numbers = values if like is None else like.to_numpy().astype(np.int64)
        if unit != "auto":
            return values // UNITS[unit]
        if not len(numbers) or (numbers.min() >= YEARS[0] and numbers.max() <= YEARS[1]):
            return (values - 1970).astype("datetime64[Y]").astype("datetime64[s]").astype(np.int64)
        if looks := time_cells.not_seconds(numbers):
            problem = f"{row_of(0)}: the time is {values[0]}; as seconds, all rows would lie in 1970."
            raise BadInput(f"{problem} It looks like {looks}.", EXPECTED, "Convert the column to dates.")
        others = numbers[~np.isin(numbers, SENTINELS)]
        is_clock = len(others) and others.min() >= 10 * time_cells.EARLY
        seconds = values // time_cells.per_second(others, f"{row_of(0)}: the time")
        odd = np.isin(values, SENTINELS if is_clock else time_cells.FAR)
        odd |= (seconds < time_cells.CALENDAR[0]) | (seconds >= time_cells.CALENDAR[1])
        if odd.any():
            raise BadInput(f"{row_of(int(odd.argmax()))}: the time is {values[odd.argmax()]}.", EXPECTED)
        return seconds
    whole = time_cells.TimeColumn("the time", unit)
    whole.add(column)
    times, said = whole.whole(most=1.0)
    if (lacking := times.form >= time_cells.NO_TIME).any():
        row = int(lacking.argmax())
        raise BadInput(f"{row_of(row)}: the time is {str(cells.shown(column[row]))[:60]!r}.", EXPECTED)
    for mixed in said:
        raise BadInput(f"{row_of(0).rpartition(',')[0]}: {mixed}", "Expected one form.", "Give all a zone.")
    return times.value


def label_times(
    column: pa.ChunkedArray, times: pa.ChunkedArray, seconds: Seconds, row_of: RowOf, unit: str = "auto"
) -> Seconds:
    """(N,) seconds UTC when labels come; `NEVER` where the column has no time: nothing, infinity, `never`.

    times: the column with the times of their samples, whose unit holds for numbers here, and (N,) seconds of it. unit:
    that unit, if it was named. Raises BadInput naming the first row that has no such value, or one before its sample's
    time.
    """
    none, floats = cells.is_nothing(column, (*NOTHING, "inf", "never")), pa.types.is_floating(column.type)
    if floats or pa.types.is_integer(column.type):
        none = pc.or_(none, pc.fill_null(pc.equal(column, np.inf if floats else NEVER), True))
    column = pc.if_else(none, pa.scalar(None, column.type), column)
    rows, there = np.flatnonzero(column.is_valid().to_numpy()), column.drop_null()
    numbers = pa.types.is_integer(times.type)
    if numbers and pa.types.is_floating(there.type):  # pandas has whole numbers beside NaN as floats
        with suppress(pa.ArrowInvalid):
            there = pc.ceil(there).cast(pa.int64())
    late = np.full(len(seconds), NEVER)
    like = times if numbers and pa.types.is_integer(there.type) else None
    if len(rows):
        late[rows] = times_of(there, lambda row: f"{row_of(int(rows[row]))}, label_time", unit, like)
    if (early := late < seconds).any():
        row = int(early.argmax())
        late_at, at = cells.shown(column[row]), cells.shown(times[row])
        problem = f"{row_of(row)}: label_time is {late_at}, and its sample's time is {at}."
        raise BadInput(problem, "Expected the sample's time or a later one; no value for a label that never comes.")
    return late


def table_of(source: Any, texts: Collection[str] | None = ()) -> pa.Table:
    """A CSV, JSON lines or Parquet file, a data frame, or columns by name, in Arrow's form. Raises MissingFile, and
    BadInput, of lines also for the first one that is no row.

    texts: columns of lines whose cells stay as they are written, None: all; others are numbers if all their cells are.
    """
    if not isinstance(source, str | Path):
        return arrow_of(source)
    path = Path(source)
    if not path.is_file():
        raise MissingFile(f"There is no file {path}.", "Expected a table: CSV, JSON lines or Parquet.")
    with readable(path, "Expected CSV, JSON lines or Parquet."):
        if is_parquet(path):
            return read_parquet(path)
        with text_rows(path) as rows:
            header, size = rows.header, 0
            parts: list[list[pa.ChunkedArray]] = []
            for table, faults, *_ in rows.parts(header, header) if isinstance(rows, JsonLines) else rows.parts():
                for fault in faults.values():
                    why = f"{fault.reason.replace('_', ' ')} in {fault.raw[:60]!r}, with {len(header)} columns"
                    raise BadInput(f"{path}, line {fault.line:,}: {why}.", "Expected one row a line.")
                parts.append(table.columns)
                if (size := size + table.nbytes) > (most := max(UNPACKED, RATIO * path.stat().st_size)):
                    raise BadInput(f"{path} would unpack to {size:,} bytes or more.", f"Expected at most {most:,}.")
    columns = []
    for name, *pieces in zip(header, *parts, strict=True):
        listed = next((piece.type for piece in pieces if pa.types.is_list(piece.type)), pa.binary())
        kind = pa.string() if all(piece.type == pa.string() for piece in pieces) else listed
        column = pa.chunked_array([chunk for piece in pieces for chunk in piece.cast(kind).chunks], kind)
        is_text = texts is None or name in texts or kind != pa.string()
        columns.append(column if is_text else _numbers(column))
    return pa.Table.from_arrays(columns, header)


def _numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts as numbers, if all are some."""
    if len(column) > FEW and _numbers(column.slice(0, FEW)).type == column.type:
        return column
    filled = pc.if_else(cells.is_nothing(column), None, column)
    for kind in (pa.int64(), pa.float64()):
        with suppress(pa.ArrowInvalid):
            return filled.cast(kind)
    return column


def column_of(table: pa.Table, path: Path, column: str | None, usual: Sequence[str], option: str) -> str:
    """The name of a column: as given, or the first usual one. Raises BadInput."""
    column = column or next((name for name in usual if name in table.column_names), " or ".join(usual))
    return column_once(table.column_names, column, path, option and f"Use {option} COLUMN.")


def texts_of(column: pa.ChunkedArray, row_of: RowOf, name: str) -> list[str]:
    """The values as text. Raises BadInput naming the first row that has none, or a rounded one."""
    return list(filled(cells.ids(column, name), row_of, name).to_pylist())


def labels_of(column: pa.ChunkedArray, name: str, nothing: Collection[str] = NOTHING) -> tuple[Labels, list[str]]:
    """(N,) labels, -1 where there is none, and the names of the classes, sorted. nothing: texts that are none, beside
    -1 and -100."""
    texts = cells.whole_numbers(cells.text(column, name, (*nothing, *NO_LABEL)))
    coded = texts.combine_chunks().dictionary_encode()
    y, classes = labelled(coded.dictionary.to_pylist())
    return np.append(y, -1)[pc.fill_null(coded.indices, len(y)).to_numpy()], classes


def filled(column: pa.ChunkedArray, row_of: RowOf, name: str) -> pa.ChunkedArray:
    """The column of texts, as they are written. Raises BadInput naming the first row that has none."""
    empty = cells.is_nothing(column, ("",))
    if lacking := pc.sum(empty).as_py():
        row = pc.index(empty, True).as_py()
        raise BadInput(f"{row_of(row)}: {name} is empty.", f"Expected one in every row; {lacking} lack it.")
    return column


def groups_of(column: pa.ChunkedArray, name: str) -> tuple[Any, str]:
    """(N,) names of groups, of which none was rounded, "" where there is none; and how many have none, if some have."""
    texts = cells.ids(column, name)
    said = f"{name} is not stated in {texts.null_count:,} of {len(texts):,} rows, each of which is a group of its own"
    return np.array(pc.fill_null(texts, "").to_pylist(), np.str_), said if texts.null_count else ""


def images_of(root: Path, names: Sequence[str], size: int, source: Path) -> LazyImages:
    """Image files below `root`. Raises MissingFile with the number of files that are not there, and BadInput for a name
    that leaves the folder. source: what names the files."""
    for name in names:
        if why := next((why for part in name.split("/") if (why := fault(part))), ""):
            raise BadInput(f"{source} names the file {name[:200]!r}: {why}.", f"Expected a file below {root}.")
    return from_files([root / name for name in names], size, source)
