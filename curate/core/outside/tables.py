"""Tables from outside: Parquet files, checked when they are opened, and CSV files whose every line counts."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from driftline.curate.core.errors import BadInput, DriftlineError, MissingFile, reason
from driftline.curate.core.outside.documents import fitted, read_text
from driftline.curate.core.outside.limits import CELL


@contextmanager
def readable(path: Path | str, expected: str, way_out: str = "") -> Iterator[None]:
    """What Arrow raises inside for a damaged file becomes a BadInput that names the file; our own errors pass."""
    try:
        yield
    except DriftlineError:
        raise
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError, OverflowError, MemoryError) as error:
        raise BadInput(f"{path} cannot be read ({reason(error)}).", expected, way_out) from None


def read_parquet(path: Path, columns: Sequence[str] | None = None, way_out: str = "") -> pa.Table:
    """A Parquet table, or some of its columns; text is valid UTF-8. Raises MissingFile, and BadInput naming the file,
    or a column that is missing or there twice."""
    if not path.is_file():
        raise MissingFile(f"There is no file {path}.", "Expected a Parquet file.", way_out)
    with readable(path, "Expected a Parquet file.", way_out), pq.ParquetFile(path) as file:
        names = file.schema_arrow.names
        for name in names if columns is None else columns:
            if (times := Counter(names)[name]) != 1:
                raise BadInput(
                    f"{path} has {'no' if not times else 'more than one'} column {name!r}.",
                    f"It has {', '.join(names)}.",
                    way_out,
                )
        table = file.read(columns=None if columns is None else list(columns))
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
