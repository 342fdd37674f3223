"""Images on this machine: files, and cells of Parquet and Arrow files (`FILE#COLUMN#ROW`)."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from driftline.curate.core.errors import BadInput, reason
from driftline.curate.core.parsing import rows_of
from driftline.curate.foreign.tables import BoundedParquet, check_offsets

Keep = Callable[[int, bytes | None, str | None, str | None], None]  # row, bytes, reason if there are none, detail
CELL = re.compile(r"(.+\.(?:parquet|arrow))#([^#]+)#([0-9]+)")


def cell_path(file: Path, column: str, row: int) -> str:
    """The `path` of an image inside a Parquet file.

    >>> cell_path(Path("/photos/0.parquet"), "image", 7)
    '/photos/0.parquet#image#7'
    """
    return f"{file}#{column}#{row}"


def read_local(part: pa.Table, most: int, keep: Keep) -> None:
    """Call `keep(row, bytes, reason, detail)` for every row of `part` that has a path.

    Of a file with more than `most` bytes, `most` + 1 are read.
    """
    cells: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for row, path in rows_of(part, "row", "path"):
        if path is None:
            continue
        if match := CELL.fullmatch(path):
            cells[match[1], match[2]].append((int(match[3]), row))
            continue
        try:
            if not Path(path).is_file():  # a pipe would let us wait for ever
                raise OSError(f"{path} is not a file")
            with Path(path).open("rb") as photo:
                keep(row, photo.read(most + 1), None, None)
        except (OSError, ValueError) as error:
            keep(row, None, "file_unreadable", str(error)[:200])
    for (file, column), wanted in cells.items():
        _read_cells(Path(file), column, sorted(wanted), keep)


def _read_cells(file: Path, column: str, wanted: list[tuple[int, int]], keep: Keep) -> None:
    """wanted: (row in the file, row of the table), sorted. One row group or batch is in memory at a time."""
    remaining = list(wanted)
    start = 0
    try:
        for values in _column(file, column, [i for i, _ in wanted]):
            inside = [(i, row) for i, row in remaining if start <= i < start + len(values)]
            for i, row in inside:
                keep(row, *_cell(values[i - start].as_py()))
            remaining = remaining[len(inside) :]
            start += len(values)
    except (OSError, pa.ArrowException, LookupError, ValueError, BadInput) as error:
        for _, row in remaining:
            keep(row, None, "file_unreadable", reason(error))
        return
    for _, row in remaining:
        keep(row, None, "file_unreadable", f"{file.name} has no such row")


def _column(file: Path, column: str, wanted: list[int]) -> Iterator[Any]:
    """The column in row groups or batches; a row group without wanted rows is not read, only its length is known."""
    if file.suffix == ".parquet":
        parquet = BoundedParquet(file)
        start = 0
        for group in range(parquet.groups):
            size = parquet.file.metadata.row_group(group).num_rows
            is_wanted = any(start <= i < start + size for i in wanted)
            yield parquet.read_group(group, [column])[column] if is_wanted else range(size)
            start += size
        return
    with pa.memory_map(str(file)) as source:
        for batch in pa.ipc.open_stream(source):
            check_offsets([batch[column]])
            yield batch[column]


def _cell(value: Any) -> tuple[bytes | None, str | None, str | None]:
    """(bytes, reason, detail) of a cell: bytes, or a struct with `bytes` and `path` as in Hugging Face data sets."""
    if isinstance(value, dict):
        value = value.get("bytes")
    if isinstance(value, bytes) and value:
        return value, None, None
    return None, "no_image", "the cell holds no image bytes"
