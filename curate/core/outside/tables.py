"""Tables from outside: Parquet files, checked when they are opened, and CSV files whose every line counts."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from driftline.curate.core.errors import BadInput, DriftlineError, MissingFile, reason
from driftline.curate.core.outside.documents import fitted, read_text
from driftline.curate.core.outside.limits import CELL, RATIO, UNPACKED
from driftline.curate.core.outside.parquet_pages import AS_THEY_ARE, CODECS, DICTIONARY, Chunk, chunks, pages

WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
BATCH = UNPACKED // 4  # bytes of the rows that are decoded at a time
OFFSET = 4  # bytes of where a text or a list ends
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


@dataclass(frozen=True)
class _Cost:
    """Bytes of a column of one row group in memory."""

    values: int
    """numbers, and the offsets of texts and lists"""
    texts: int
    shared: int
    """at most, of texts of which only decoding tells more: DELTA_BYTE_ARRAY, a codec of Hadoop"""
    longest: int
    """the longest value; 0 for texts that are in the file as they are"""
    page: int
    """the largest page, unpacked"""
    listed: bool


class BoundedParquet:
    """A Parquet file that is read within a budget of memory: UNPACKED, or RATIO times its own size. A column of one
    value takes a few bytes on disk and any number in memory, so what it becomes is computed from the headers of its
    pages before it is decoded. Errors of Arrow pass."""

    def __init__(self, source: Any, name: Any = None) -> None:
        """source: a path, or an open file that can seek. name: for messages."""
        self.name = source if name is None else name
        self._is_ours = isinstance(source, str | Path)
        if self._is_ours:
            source = pa.OSFile(str(source))
        self._source = source if isinstance(source, pa.NativeFile) else pa.PythonFile(source, "r")
        self.size: int = self._source.size()
        self._chunks: list[list[Chunk]] | None = None
        self.file = pq.ParquetFile(self._source)
        self.schema: pa.Schema = self.file.schema_arrow
        self.groups: int = self.file.num_row_groups
        self.rows: int = self.file.metadata.num_rows

    def __enter__(self) -> BoundedParquet:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_ours:
            self._source.close()

    def read(self, columns: Sequence[str] | None = None, threads: bool = True) -> pa.Table:
        """All rows. Raises BadInput if they would be too large."""
        names = None if columns is None else list(columns)
        if self._fits(range(self.groups), columns):
            return self.file.read(names, use_threads=threads)
        return self._bit_by_bit(range(self.groups), names)

    def read_group(self, group: int, columns: Sequence[str]) -> pa.Table:
        """The rows of one row group. Raises as `read`."""
        if self._fits([group], columns):
            return self.file.read_row_group(group, columns=list(columns))
        return self._bit_by_bit([group], list(columns))

    def batches(self, rows: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """All rows, at most `rows` at a time, and fewer if they are large. Raises BadInput for more rows than bytes."""
        if self.rows > max(FEW, self.size):
            raise BadInput(
                f"{self.name} claims {self.rows:,} rows in {self.size:,} bytes.", "Expected a byte or more a row."
            )
        widest = 1
        for group in range(self.groups):
            costs = self._costs(group, columns)
            self._refuse(sum(cost.values for cost in costs if cost.listed), max(cost.page for cost in costs))
            widest = max(widest, sum(cost.longest for cost in costs))
        yield from self.file.iter_batches(max(1, min(rows, BATCH // widest)), columns=list(columns))

    def _fits(self, groups: Sequence[int], columns: Sequence[str] | None) -> bool:
        """Whether these row groups may be read as a whole; False: only bit by bit. Raises BadInput if they are too
        large."""
        costs = [cost for group in groups for cost in self._costs(group, columns)]
        self._refuse(sum(cost.values + cost.texts for cost in costs), *(cost.page for cost in costs))
        return sum(cost.values + cost.texts + cost.shared for cost in costs) <= self._most()

    def _refuse(self, *sizes: int) -> None:
        if (size := max(sizes)) > self._most():
            raise BadInput(f"{self.name} would unpack to {size:,} bytes.", f"Expected at most {self._most():,}.")

    def _most(self) -> int:
        return max(UNPACKED, RATIO * self.size)

    def _bit_by_bit(self, groups: Sequence[int], columns: list[str] | None) -> pa.Table:
        """The same rows, whose size is known only when they are decoded."""
        widest = max(sum(cost.longest for cost in self._costs(group, columns)) for group in groups)
        batches, size = [], 0
        for batch in self.file.iter_batches(max(1, BATCH // widest), row_groups=list(groups), columns=columns):
            batches.append(batch)
            self._refuse(size := size + batch.nbytes)
        return pa.Table.from_batches(batches)

    def _costs(self, group: int, columns: Sequence[str] | None) -> list[_Cost]:
        """What each column of a row group becomes. Raises ArrowInvalid for headers that are damaged."""
        try:
            if self._chunks is None:
                self._chunks = chunks(self._bytes, self.size)
            return self._costs_of(group, self._chunks[group], columns)
        except (LookupError, TypeError, AttributeError, OverflowError, ValueError) as error:
            raise pa.ArrowInvalid(f"the headers of its pages are damaged: {reason(error)}") from None

    def _costs_of(self, group: int, parts: Sequence[Chunk], columns: Sequence[str] | None) -> list[_Cost]:
        costs = []
        rows = self.file.metadata.row_group(group).num_rows  # its columns' sizes: Arrow ends the process if damaged
        for i, chunk in enumerate(parts):
            column = self.file.schema.column(i)
            if columns is None or column.path.partition(".")[0] in columns:
                width = WIDTHS.get(column.physical_type) or column.length
                costs.append(self._cost(chunk, width, column.max_repetition_level > 0, rows))
        return costs

    def _cost(self, chunk: Chunk, width: int, listed: bool, rows: int) -> _Cost:
        count = texts = shared = longest = largest = 0
        for page in pages(self._bytes, chunk, not width, self._most()):
            count, largest = count + page.values, max(largest, page.size)
            if width:
                continue
            if page.encoding in DICTIONARY and chunk.codec in (0, *CODECS):
                texts, longest = texts + page.values * page.longest, max(longest, page.longest)
            elif page.encoding in AS_THEY_ARE:
                texts += page.size
            else:
                shared, longest = shared + page.values * page.size, max(longest, page.size)
        values = (width or OFFSET) * max(rows, count) + (OFFSET * (rows + count) if listed else 0)
        return _Cost(values, texts, shared, width or longest, largest, listed)

    def _bytes(self, start: int, length: int) -> bytes:
        data: bytes = self._source.read_at(max(0, min(length, self.size - start)), start)
        return data


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
