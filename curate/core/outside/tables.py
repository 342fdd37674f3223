"""Tables from outside: Parquet files, checked when they are opened, and CSV files whose every line counts."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.curate.core.errors import BadInput, DriftlineError, MissingFile, reason
from driftline.curate.core.outside.documents import fitted, read_text
from driftline.curate.core.outside.limits import CELL, RATIO, UNPACKED

WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
BATCH = UNPACKED // 4  # bytes of the rows that are decoded at a time
PAGE = 1 << 16  # bytes that are read at a time to look at a column's dictionary
FEW = 1_000_000  # rows of a photo table that may have less than a byte each


@contextmanager
def readable(path: Path | str, expected: str, way_out: str = "") -> Iterator[None]:
    """What Arrow raises inside for a damaged file becomes a BadInput that names the file; our own errors pass."""
    try:
        yield
    except DriftlineError:
        raise
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError, OverflowError, MemoryError) as error:
        raise BadInput(f"{path} cannot be read ({reason(error)}).", expected, way_out) from None


class BoundedParquet:
    """A Parquet file that is read within a budget of memory: UNPACKED, or RATIO times its own size. A column of one
    value takes a few bytes on disk and any number in memory, so what it becomes is known before anything is decoded;
    lists count with one value each. Errors of Arrow pass."""

    def __init__(self, source: Any, name: Any = None) -> None:
        """source: a path, or an open file that can seek. name: for messages."""
        self.name = source if name is None else name
        self.source, self.size = source, _size_of(source)
        self.file = pq.ParquetFile(source)
        self.schema: pa.Schema = self.file.schema_arrow
        self.groups: int = self.file.num_row_groups
        self.rows: int = self.file.metadata.num_rows

    def __enter__(self) -> BoundedParquet:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def read(self, columns: Sequence[str] | None = None, threads: bool = True) -> pa.Table:
        """All rows. Raises BadInput if they would be too large."""
        self._check(range(self.groups), columns)
        return self.file.read(None if columns is None else list(columns), use_threads=threads)

    def read_group(self, group: int, columns: Sequence[str]) -> pa.Table:
        """The rows of one row group. Raises as `read`."""
        self._check([group], columns)
        return self.file.read_row_group(group, columns=list(columns))

    def batches(self, rows: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """All rows, at most `rows` at a time, and fewer if they are large. Raises BadInput for more rows than bytes."""
        if self.rows > max(FEW, self.size):
            raise BadInput(
                f"{self.name} claims {self.rows:,} rows in {self.size:,} bytes.", "Expected a byte or more a row."
            )
        for exact in (False, True):
            widest = max((self._width(group, columns, exact) for group in range(self.groups)), default=1)
            if rows * widest <= BATCH:
                break
        yield from self.file.iter_batches(max(1, min(rows, BATCH // max(1, widest))), columns=list(columns))

    def _check(self, groups: Sequence[int], columns: Sequence[str] | None) -> None:
        most = max(UNPACKED, RATIO * self.size)
        for exact in (False, True):  # texts are looked at only if they could be too large
            size = sum(self._width(group, columns, exact) * self._group(group).num_rows for group in groups)
            if size <= most:
                return
        raise BadInput(f"{self.name} would unpack to {size:,} bytes.", f"Expected at most {most:,}.")

    def _group(self, group: int) -> Any:
        """Sizes of a row group. Those of its columns are not asked for: Arrow ends the process if they are damaged."""
        return self.file.metadata.row_group(group)

    def _width(self, group: int, columns: Sequence[str] | None, exact: bool) -> int:
        """Bytes that one row has at most in memory, with one value in each list; values that no dictionary holds are in
        the file as they are. exact: look into the dictionaries."""
        width = 0
        for i in range(len(self.file.schema)):
            column = self.file.schema.column(i)
            if columns is None or column.path.partition(".")[0] in columns:
                fixed = WIDTHS.get(column.physical_type) or column.length
                width += fixed or (self._longest(group, column.path) if exact else self._group(group).total_byte_size)
        return width

    def _longest(self, group: int, path: str) -> int:
        """Bytes of the longest value in the dictionary of a column."""
        file = pq.ParquetFile(self.source, read_dictionary=[path], buffer_size=PAGE, metadata=self.file.metadata)
        first = next(file.iter_batches(1, row_groups=[group], columns=[path], use_threads=False), None)
        values: Any = None if first is None else first.column(0)
        while values is not None and not pa.types.is_dictionary(values.type):
            if not pa.types.is_nested(values.type):
                return 0
            values = values.field(0) if pa.types.is_struct(values.type) else values.values
        if values is None or not len(values.dictionary):
            return 0
        return int(pc.max(pc.binary_length(values.dictionary.cast(pa.large_binary()))).as_py() or 0)


def _size_of(source: Any) -> int:
    """Bytes of a file: a path, an open file, or Arrow's reader of a buffer."""
    if isinstance(source, str | Path):
        return Path(source).stat().st_size
    if hasattr(source, "size"):
        return int(source.size() if callable(source.size) else source.size)
    size = int(source.seek(0, 2))
    source.seek(0)
    return size


def read_parquet(path: Path, columns: Sequence[str] | None = None, way_out: str = "") -> pa.Table:
    """A Parquet table, or some of its columns; text is valid UTF-8. Raises MissingFile, and BadInput naming the file,
    a column that is missing or there twice, or a table beyond the budget of `BoundedParquet`."""
    if not path.is_file():
        raise MissingFile(f"There is no file {path}.", "Expected a Parquet file.", way_out)
    with readable(path, "Expected a Parquet file.", way_out), BoundedParquet(path) as file:
        names = file.schema.names
        for name in names if columns is None else columns:
            if (times := Counter(names)[name]) != 1:
                raise BadInput(
                    f"{path} has {'no' if not times else 'more than one'} column {name!r}.",
                    f"It has {', '.join(names)}.",
                    way_out,
                )
        table = file.read(columns)
        table.validate(full=True)
        return table


def check_offsets(columns: Sequence[pa.Array]) -> None:
    """Raise ArrowInvalid for an array whose offsets lead out of it: Arrow follows them, and ends the process.

    Text that is not UTF-8 passes if it is in a column of its own, because it costs one row only.
    """
    bare = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
    for column in columns:
        (column.view(bare[column.type]) if column.type in bare else column).validate(full=True)


def csv_rows(
    path: Path, needed: Sequence[str], expected: str, way_out: str = "", delimiter: str = ","
) -> Iterator[tuple[int, dict[str, str]]]:
    """(number of the last line, cells by column) of each row of a CSV file in UTF-8 with a header; empty lines are
    skipped. No row is lost: a quote that nothing closes and a row of another length raise BadInput naming the line.
    Separators at the end of a line are no cell.

    needed: columns that the file must have. expected, way_out: sentences for messages.
    """
    csv.field_size_limit(CELL)
    reader = csv.reader(io.StringIO(read_text(path, way_out), newline=""), delimiter=delimiter, strict=True)
    try:
        header = next(reader, [])
        for column in needed:
            if column not in header:
                raise BadInput(f"{path} has no column {column}.", expected, way_out)
        if twice := [column for column, times in Counter(header).items() if column and times > 1]:
            raise BadInput(f"{path} has more than one column {twice[0]!r}.", expected, way_out)
        for cells in (fitted(row, header) for row in reader if row):
            if len(cells) != len(header):
                raise BadInput(
                    f"{path}, line {reader.line_num} has {len(cells)} cells, the header {len(header)}.",
                    "Expected the same number.",
                    way_out,
                )
            yield reader.line_num, dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise BadInput(f"{path}, line {reader.line_num}: not a CSV row ({reason(error)}).", expected, way_out) from None
