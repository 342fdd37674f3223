"""Tables of photos: CSV, TSV or JSON lines, each row an image file or URL with a time."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from curate.core.errors import BadInput, MissingFile
from curate.metadata.column_mapping import check_columns, is_utf8, printable, record_of
from curate.metadata.schema import batch_of

JSON_LINES = (".jsonl", ".ndjson")


@dataclass(frozen=True)
class Delimited:
    """A CSV or TSV table with a header, or JSON lines (.jsonl, .ndjson); `.gz` is read as it is.

    path: UTF-8 text. columns: {table column: file column}; `uploaded` and one of `url`, `path` are needed,
    `id` defaults to the row's `path` or `url`. root: folder that relative image paths start from (default:
    the table's own folder); a path that leaves it is a fault.

    Times: four digits are a year (its first second, UTC), other integers are seconds since the epoch, the rest
    is ISO 8601 (without zone: UTC).
    """

    path: Path
    columns: Mapping[str, str] = field(default_factory=dict)
    delimiter: str = ","
    root: Path | None = None

    def inputs(self) -> list[Path]:
        """The table."""
        if not self.path.is_file():
            raise MissingFile(
                f"There is no file {self.path}.", "Expected a table with a header.", "Check collection.path."
            )
        return [self.path]

    def batches(self, rows: int = 65_536, skip: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield one record a row, in file order."""
        (path,) = self.inputs()
        check_columns(self.columns, "url", "path")
        root = (self.root or path.parent).resolve()
        row = skip
        with _opened(path) as file:
            kind = path.name.removesuffix(".gz")
            found = self._json(file, path) if kind.endswith(JSON_LINES) else self._csv(file, path)
            left = islice(found, skip, None)
            while chunk := list(islice(left, rows)):
                yield batch_of([_record(values, self.columns, row + i, root) for i, values in enumerate(chunk)])
                row += len(chunk)

    def _csv(self, file: IO[str], path: Path) -> Iterator[dict[str, Any]]:
        csv.field_size_limit(sys.maxsize)
        reader = csv.DictReader(file, delimiter=self.delimiter)
        header = reader.fieldnames or []
        if not header:
            raise BadInput(f"The file {path} is empty.", "Expected a header line and one row a photo.")
        if missing := sorted(set(self.columns.values()) - set(header)):
            raise BadInput(
                f"{path} has no column {', '.join(map(repr, missing))}.",
                f"Its header is {list(header)}.",
                "Correct collection.columns or collection.delimiter.",
            )
        try:
            for values in reader:
                ragged = None in values or None in values.values()
                yield {"fault": "wrong_column_count", "raw": str(dict(values))} if ragged else values
        except (csv.Error, EOFError, OSError) as error:
            raise BadInput(f"{path} cannot be read after line {reader.line_num:,} ({error}).") from None

    def _json(self, file: IO[str], path: Path) -> Iterator[dict[str, Any]]:
        empty = True
        for line in file:
            empty = False
            try:
                value = json.loads(line) if is_utf8(line) else None
            except (json.JSONDecodeError, RecursionError):
                value = None
            if not isinstance(value, dict):
                yield {"fault": "bad_json" if is_utf8(line) else "not_utf8", "raw": line.rstrip("\n")}
            elif missing := set(self.columns.values()) & {c for c in self.columns.values() if c not in value}:
                optional = {c for n, c in self.columns.items() if n not in ("uploaded", "url", "path", "id")}
                needed = sorted(missing - optional)
                yield {"fault": "missing_field", "raw": line.rstrip("\n")} if needed else value
            else:
                yield value
        if empty:
            raise BadInput(f"The file {path} is empty.", "Expected one JSON object a line.")


def _record(values: dict[str, Any], columns: Mapping[str, str], row: int, root: Path) -> dict[str, Any]:
    if values.keys() == {"fault", "raw"}:
        return {"row": row, "fault": values["fault"], "raw": printable(values["raw"])}
    return record_of(values, columns, row, root)


def _opened(path: Path) -> IO[str]:
    """Text in which bytes that are no UTF-8 survive as escapes: they spoil their own row only."""
    opener: Callable[..., Any] = gzip.open if path.suffix == ".gz" else open
    raw = opener(path, "rb")
    return io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape", newline="")
