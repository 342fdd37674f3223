"""Images that are already on this machine: files, and cells of Parquet files (`FILE.parquet#COLUMN#ROW`)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from curate.fetch.rules import Got

CELL = re.compile(r"(.+\.parquet)#([^#]+)#([0-9]+)")


def cell_path(file: Path, column: str, row: int) -> str:
    """How the table's `path` names an image inside a Parquet file.

    >>> cell_path(Path("/photos/0.parquet"), "image", 7)
    '/photos/0.parquet#image#7'
    """
    return f"{file}#{column}#{row}"


def read_local(part: pa.Table, keep: Callable[[int, Got], None]) -> None:
    """`keep(row, outcome)` for every row of `part` that has a path."""
    cells: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for row, path in zip(part["row"].to_pylist(), part["path"].to_pylist(), strict=True):
        if path is None:
            continue
        if found := CELL.fullmatch(path):
            cells[found[1], found[2]].append((int(found[3]), row))
            continue
        try:
            keep(row, Got(Path(path).read_bytes()))
        except (OSError, ValueError) as error:
            keep(row, Got(None, "file_unreadable", str(error)[:200]))
    for (file, column), wanted in cells.items():
        _read_cells(Path(file), column, sorted(wanted), keep)


def _read_cells(file: Path, column: str, wanted: list[tuple[int, int]], keep: Callable[[int, Got], None]) -> None:
    """wanted: (row in the file, row of the table), in order. One row group is in memory at a time."""
    left = list(wanted)
    try:
        parquet = pq.ParquetFile(file)
        start = 0
        for group in range(parquet.num_row_groups):
            size = parquet.metadata.row_group(group).num_rows
            here = [(i, row) for i, row in left if start <= i < start + size]
            if here:
                values = parquet.read_row_group(group, columns=[column])[column]
                for i, row in here:
                    keep(row, _cell(values[i - start].as_py()))
                left = left[len(here) :]
            start += size
    except (OSError, pa.ArrowInvalid, KeyError) as error:
        for _, row in left:
            keep(row, Got(None, "file_unreadable", str(error)[:200]))
        return
    for _, row in left:
        keep(row, Got(None, "file_unreadable", f"{file.name} has no such row"))


def _cell(value: Any) -> Got:
    """Bytes, or a record with `bytes` and `path`, as Hugging Face data sets store images."""
    if isinstance(value, dict):
        value = value.get("bytes")
    return Got(value) if isinstance(value, bytes) and value else Got(None, "no_image", "the cell holds no image bytes")
