"""Tables of photos: CSV or TSV with a header, each row an image file or URL with a time."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from curate.ground.errors import BadConfig, BadInput, MissingFile
from curate.table import TABLE, batch_of, safe_id

NOT_FROM_FILE = {"row", "media"}


@dataclass(frozen=True)
class Delimited:
    """A CSV or TSV table with a header; `columns` says which column is which.

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
        allowed = [name for name in TABLE.names if name not in NOT_FROM_FILE]
        for name in self.columns:
            if name not in allowed:
                raise BadConfig(f"collection.columns names {name!r}.", f"Allowed: {', '.join(allowed)}.")
        if "uploaded" not in self.columns or not {"url", "path"} & set(self.columns):
            raise BadConfig(
                f"collection.columns names {sorted(self.columns)}.",
                "Expected at least uploaded and one of url, path.",
                "Example: columns: {path: filename, uploaded: year, label: species}.",
            )
        csv.field_size_limit(sys.maxsize)
        root = (self.root or path.parent).resolve()
        row = skip
        try:
            with path.open(newline="", encoding="utf-8-sig") as file:
                reader = csv.DictReader(file, delimiter=self.delimiter)
                header = reader.fieldnames or []
                if not header:
                    raise BadInput(f"The file {path} is empty.", "Expected a header line and one row a photo.")
                if missing := sorted(set(self.columns.values()) - set(header)):
                    raise BadInput(
                        f"{path} has no column {', '.join(map(repr, missing))}.",
                        f"Its header is {header}.",
                        "Correct collection.columns or collection.delimiter.",
                    )
                lines = islice(reader, skip, None)
                while chunk := list(islice(lines, rows)):
                    yield batch_of([self._record(values, row + i, root) for i, values in enumerate(chunk)])
                    row += len(chunk)
        except UnicodeDecodeError as error:
            raise BadInput(f"{path} is not UTF-8 ({error}).", "", "Convert it, for example with iconv.") from None

    def _record(self, values: Mapping[str, Any], row: int, root: Path) -> dict[str, Any]:
        def bad(fault: str) -> dict[str, Any]:
            return {"row": row, "fault": fault, "raw": str(dict(values))[:2000]}

        if None in values or None in values.values():
            return bad("wrong_column_count")
        record: dict[str, Any] = {"row": row, "media": "photo"}
        for name, column in self.columns.items():
            text = values[column].strip().replace("\x00", "\ufffd")
            record[name] = text or None
        if record.get("path"):
            target = (root / record["path"]).resolve()
            if not target.is_relative_to(root):
                return bad("path_outside_root")
            record["path"] = str(target)
        for name in ("uploaded", "taken"):
            if record.get(name) is not None:
                try:
                    record[name] = seconds_of(record[name])
                except ValueError:
                    return bad("bad_upload_time" if name == "uploaded" else "bad_capture_time")
        for name in ("longitude", "latitude"):
            if record.get(name) is not None:
                try:
                    record[name] = float(record[name])
                except ValueError:
                    return bad("bad_coordinate")
        name = (
            values[self.columns["id"]]
            if "id" in self.columns
            else values[self.columns.get("path") or self.columns["url"]]
        )
        if not name.strip():
            return bad("bad_id")
        record["id"] = safe_id(name.strip())
        return record


def seconds_of(text: str) -> int:
    """A time as text → seconds since the epoch, UTC. Raises ValueError.

    >>> seconds_of("1970"), seconds_of("86400"), seconds_of("1970-01-01T00:01:00+00:00")
    (0, 86400, 60)
    """
    if text.isdigit() and len(text) == 4:
        return int(datetime(int(text), 1, 1, tzinfo=UTC).timestamp())
    try:
        return int(text)
    except ValueError:
        moment = datetime.fromisoformat(text)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
