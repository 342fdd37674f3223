"""Parquet files from outside, checked when they are opened."""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import json_value
from driftline.curate.core.errors import BadInput, DriftlineError, MissingFile, reason
from driftline.curate.foreign.arrays import moments_of
from driftline.curate.foreign.limits import PART, RATIO, UNPACKED
from driftline.curate.foreign.names import column_once

PARQUET = (".parquet", ".pq")
OF_PYTHON = (OSError, ValueError, LookupError, TypeError, OverflowError, MemoryError, EOFError)  # of its readers
BATCH = 65_536  # rows that are decoded at a time
FEW = 1_000_000  # rows of a photo table that may have less than a byte each


@contextmanager
def readable(path: Path | str, expected: str, way_out: str = "") -> Iterator[None]:
    """What Arrow raises inside for a damaged file becomes a BadInput that names the file; our own errors pass."""
    try:
        yield
    except DriftlineError:
        raise
    except (pa.ArrowException, zlib.error, *OF_PYTHON) as error:
        raise BadInput(f"{path} cannot be read ({reason(error)}).", expected, way_out) from None


class BoundedParquet:
    """A Parquet file that is read within a budget of memory: UNPACKED, or RATIO times its own size. Its rows are read
    in batches, whose bytes are counted; reading stops above the budget. Errors of Arrow pass."""

    def __init__(self, source: Any, name: Any = None) -> None:
        """source: a path, or an open file that can seek. name: for messages."""
        self.name = source if name is None else name
        self._is_ours = isinstance(source, str | Path)
        if self._is_ours:
            source = pa.OSFile(str(source))
        self._source = source if isinstance(source, pa.NativeFile) else pa.PythonFile(source, "r")
        self.size: int = self._source.size()
        self.file = pq.ParquetFile(self._source)
        self.schema: pa.Schema = self.file.schema_arrow
        self.groups: int = self.file.num_row_groups
        self.rows: int = self.file.metadata.num_rows

    def __enter__(self) -> "BoundedParquet":
        return self

    def __exit__(self, *_: object) -> None:
        del self.file  # Arrow keeps something of each row group
        if self._is_ours:
            self._source.close()

    def read(
        self, columns: Sequence[str] | None = None, group: int | None = None, threads: bool = True
    ) -> pa.Table:  # fmt: skip
        """All rows, or those of one row group. Raises BadInput if they would be too large."""
        groups = [*range(self.groups)] if group is None else [group]
        if columns is None:
            self._refuse(sum(self.file.metadata.row_group(number).total_byte_size for number in groups))
        names = None if columns is None else list(columns)
        batches, size = [], 0
        for batch in self.file.iter_batches(BATCH, row_groups=groups, columns=names, use_threads=threads):
            self._refuse(size := size + batch.nbytes)
            batches.append(batch)
        return pa.Table.from_batches(batches) if batches else self.file.read_row_groups(groups, names)

    def batches(self, rows: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """All rows, at most `rows` at a time, and fewer where they might be more than PART. Raises BadInput for more
        rows than bytes, and for a batch that is too large."""
        if self.rows > max(FEW, self.size):
            raise BadInput(
                f"{self.name} claims {self.rows:,} rows in {self.size:,} bytes.", "Expected at least one byte per row."
            )
        for batch in self.file.iter_batches(self._at_once(rows, columns), columns=list(columns)):
            self._refuse(batch.nbytes)
            yield batch

    def _at_once(self, rows: int, columns: Sequence[str]) -> int:
        """How many rows, at most `rows`, are within PART, also if each has the longest text of its dictionary."""
        # Not `row_group(n).column(i)`: Arrow ends the process where a file is wrong about the sizes of a column.
        schema = self.file.schema
        leaves = [schema.column(i) for i in range(len(schema))]
        texts = [
            leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY" and leaf.path.split(".")[0] in columns
        ]
        names = sorted({path.split(".")[0] for path in texts})
        for number in range(self.groups):
            group = self.file.metadata.row_group(number)
            width = group.total_byte_size // max(1, group.num_rows)
            if texts and group.total_byte_size > PART // max(1, rows):  # else no text of a dictionary is too long
                file = pq.ParquetFile(self._source, metadata=self.file.metadata, read_dictionary=texts)
                first = next(file.iter_batches(1, [number], names), None)
                width += sum(map(_longest, first.columns)) if first else 0
            rows = max(1, min(rows, PART // max(1, width)))
        return rows

    def _refuse(self, size: int) -> None:
        if size > (most := max(UNPACKED, RATIO * self.size)):
            raise BadInput(f"{self.name} would unpack to {size:,} bytes or more.", f"Expected at most {most:,}.")


def _longest(column: pa.Array) -> int:
    """Bytes of the longest text in the dictionaries of a column."""
    if pa.types.is_dictionary(column.type):
        return pc.max(pc.binary_length(column.dictionary)).as_py() or 0
    if pa.types.is_struct(column.type):
        return sum(map(_longest, column.flatten()))
    return _longest(column.values) if hasattr(column, "values") else 0


def is_parquet(path: Path) -> bool:
    """Whether a file is Parquet, by its first bytes or the end of its name."""
    with path.open("rb") as file:
        return file.read(4) == b"PAR1" or path.suffix.lower() in PARQUET


def tables_below(folder: Path) -> list[Path]:
    """The Parquet files in a folder in name order; without one, those that `datasets` wrote with `save_to_disk`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    arrow = [path for path in files if path.suffix.lower() == ".arrow" and not path.name.startswith("cache-")]
    return [path for path in files if path.suffix.lower() in PARQUET] or arrow


def opened_rows(file: Any, name: Any) -> tuple[pa.Schema, Callable[[int, Sequence[str]], Iterator[pa.RecordBatch]]]:
    """The schema of a Parquet file, or of one that `datasets` wrote with `save_to_disk` (.arrow), and what gives some
    columns of its rows: at most so many rows at a time, of .arrow as they are stored. Numbers of classes become their
    names. name: of the file."""
    opened: Any = pa.ipc.open_stream(file) if str(name).lower().endswith(".arrow") else BoundedParquet(file, name)
    classes = class_names(opened.schema)

    def batches(rows: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        row, is_parquet = 1, isinstance(opened, BoundedParquet)
        for batch in opened.batches(rows, columns) if is_parquet else (one.select(columns) for one in opened):
            check_offsets(batch.columns)
            for place, column in enumerate(batch.schema.names):
                if column in classes and pa.types.is_integer(batch.column(place).type):
                    named = named_classes(batch.column(place), classes[column], f"{name}: {column}", row)
                    batch = batch.set_column(place, column, named)
            row += len(batch)
            yield batch

    return opened.schema, batches


def class_names(schema: pa.Schema) -> dict[str, list[str]]:
    """Column → names of its classes, where the file's own metadata describes it as ClassLabel of `datasets`."""
    try:
        features: Any = json_value((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return {c: list(map(str, f["names"])) for c, f in features.items() if f.get("_type") == "ClassLabel"}
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def named_classes(numbers: Any, names: Sequence[str], what: str, row: int) -> Any:
    """(N,) names of numbers of classes; below 0 is none. Raises BadInput for one beyond the names. what, row: the
    column, and the number of the first row, in the message."""
    beyond = pc.fill_null(pc.greater_equal(numbers, len(names)), False)
    if (place := pc.index(beyond, True).as_py()) >= 0:
        problem = f"{what} is {numbers[place]} in row {row + place:,}, and it has {len(names):,} names of classes."
        raise BadInput(problem, f"Expected 0 … {len(names) - 1:,}, or -1 for no label.")
    return pa.array(names, pa.string()).take(pc.if_else(pc.greater_equal(numbers, 0), numbers, None))


def read_parquet(path: Path, columns: Sequence[str] | None = None, way_out: str = "") -> pa.Table:
    """A Parquet table, or some of its columns; text is valid UTF-8. Raises MissingFile, and BadInput naming the file,
    a column that is missing or there twice, or a table beyond the budget of `BoundedParquet`."""
    if not path.is_file():
        raise MissingFile(f"There is no file {path}.", "Expected a Parquet file.", way_out)
    with readable(path, "Expected a Parquet file.", way_out), BoundedParquet(path) as file:
        names = file.schema.names
        for name in names if columns is None else columns:
            column_once(names, name, path, way_out)
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


def arrow_of(source: Any) -> pa.Table:
    """A data frame of pandas or another library, rows, or columns by name, in Arrow's form. Raises BadInput."""
    try:
        if isinstance(source, pa.Table):
            return source
        if isinstance(source, Mapping):
            return pa.table({str(name): moments_of(column) for name, column in source.items()})
        if isinstance(source, list):
            return pa.Table.from_pylist(source)
        if hasattr(source, "apply"):
            return pa.Table.from_pandas(source.apply(moments_of).rename(columns=str), preserve_index=False)
        return pa.table(source)
    except (pa.ArrowException, AttributeError, TypeError, ValueError) as error:
        expected = "Expected a file, a data frame, an Arrow table, rows, or columns by name."
        why = "; ".join(map(str, error.args))  # Arrow's has the value, then its column
        raise BadInput(f"{type(source).__name__} is no table ({why}).", expected) from None
