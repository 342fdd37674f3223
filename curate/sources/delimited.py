"""Tables of photos: CSV, TSV or JSON lines, each row an image file or URL with a time."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator

from driftline.curate.core.errors import BadInput, MissingFile, reason
from driftline.curate.core.outside.documents import check_encoding, fitted
from driftline.curate.core.outside.limits import CELL, ROW_LINES
from driftline.curate.core.outside.names import is_utf8
from driftline.curate.core.settings import PLACE, PathText
from driftline.curate.metadata.column_mapping import check_columns, printable, record_of
from driftline.curate.metadata.column_survey import Reading
from driftline.curate.sources.base import HERE, TableSource, Workplace

if TYPE_CHECKING:
    import pyarrow as pa

JSON_LINES = (".jsonl", ".ndjson")


class Delimited(TableSource):
    """A CSV or TSV table with a header, or JSON lines (.jsonl, .ndjson), in UTF-8; also compressed (.gz).

    Times: four digits are a year (its first second, UTC), other numbers are what `time_unit` says, the rest is ISO 8601
    (without zone: UTC).
    """

    columns: Annotated[dict[str, str], AfterValidator(partial(check_columns, images=("url", "path")))]
    """column of the collection → column of the table, e.g. {path: filename, uploaded: year}; uploaded and one of url,
    path are needed; id defaults to the row's path or url"""
    delimiter: str = ","
    """column separator"""
    root: Annotated[PathText | None, PLACE] = None
    """folder that image paths start from and stay below (null: the table's folder)"""

    def inputs(self, at: Workplace = HERE) -> list[Path]:
        """The table."""
        path = at.path(self.path)
        if not path.is_file():
            raise MissingFile(f"There is no file {path}.", "Expected a table with a header.", "Check collection.path.")
        return [path]

    def batches(self, rows: int = 65_536, skip: int = 0, at: Workplace = HERE) -> Iterator[pa.RecordBatch]:
        """Yield one record a row, in file order."""
        from driftline.curate.metadata.schema import batch_of

        (path,) = self.inputs(at)
        root = (path.parent if self.root is None else at.path(self.root)).resolve()
        row, reading = skip, self.survey(at)
        rest = islice(self.cells(at), skip, None)
        while chunk := list(islice(rest, rows)):
            yield batch_of([_record(values, self.columns, row + i, root, reading) for i, values in enumerate(chunk)])
            row += len(chunk)

    def cells(self, at: Workplace, names: Collection[str] = ()) -> Iterator[dict[str, Any]]:
        """Every row with all its columns, or `fault` and `raw`."""
        (path,) = self.inputs(at)
        lines = _Lines()
        try:
            with _open_text(path) as lines.file:
                is_json = path.name.removesuffix(".gz").endswith(JSON_LINES)
                yield from self._json(lines, path) if is_json else self._csv(lines, path)
        except (csv.Error, EOFError, OSError, zlib.error) as error:
            raise BadInput(f"{path} cannot be read after line {lines.number:,} ({reason(error)}).") from None

    def _csv(self, lines: _Lines, path: Path) -> Iterator[dict[str, Any]]:
        csv.field_size_limit(CELL)
        header = next(csv.reader(lines, delimiter=self.delimiter), [])
        if not header:
            raise BadInput(f"The file {path} is empty.", "Expected a header line and one row a photo.")
        names = self.columns.values()
        missing = sorted({*names} - {*header})
        if wrong := missing or [name for name in names if header.count(name) > 1]:
            raise BadInput(
                f"{path} has {'no' if missing else 'more than one'} column {', '.join(map(repr, wrong))}.",
                f"Its header is {header}.",
                "Correct it, collection.columns or collection.delimiter.",
            )
        yield from self._rows(lines, header)

    def _rows(self, lines: _Lines, header: list[str]) -> Iterator[dict[str, Any]]:
        """Rows, and in the place of a row with an unclosed quote only its first line: the next line is read again."""
        reader = csv.reader(lines, delimiter=self.delimiter)
        while True:
            lines.record = []
            try:
                values = next(reader, None)
            except _UnclosedQuote:
                values = []
            if values is None:
                return
            values = fitted(values, header)
            whole = len(values) == len(header) and not lines.ended
            if len(lines.record) > 1 and not whole:
                yield {"fault": "unclosed_quote", "raw": lines.record[0].rstrip("\r\n")}
                lines.again(lines.record[1:])
                reader = csv.reader(lines, delimiter=self.delimiter)
            elif values and not whole:
                yield {"fault": "wrong_column_count", "raw": str(values)}
            elif values:
                yield dict(zip(header, values, strict=True))

    def _json(self, lines: _Lines, path: Path) -> Iterator[dict[str, Any]]:
        for line in lines:
            lines.record = []
            try:
                value = json.loads(line) if is_utf8(line) else None
            except (ValueError, RecursionError):
                value = None
            if not isinstance(value, dict):
                yield {"fault": "bad_json" if is_utf8(line) else "not_utf8", "raw": line.rstrip("\n")}
            elif missing := set(self.columns.values()) & {c for c in self.columns.values() if c not in value}:
                optional = {c for n, c in self.columns.items() if n not in ("uploaded", "url", "path", "id")}
                needed = sorted(missing - optional)
                yield {"fault": "missing_field", "raw": line.rstrip("\n")} if needed else value
            else:
                yield value
        if not lines.number:
            raise BadInput(f"The file {path} is empty.", "Expected one JSON object a line.")


class _UnclosedQuote(csv.Error):
    """One row goes on for more than ROW_LINES lines."""


class _Lines:
    """The lines of a file for `csv.reader`, with those of the current row, which can be read again."""

    def __init__(self) -> None:
        self.file: Iterator[str] = iter(())
        self._waiting = deque[str]()
        self.record: list[str] = []
        self.number = 0
        self.ended = False  # a row asked for more lines than there are

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if len(self.record) == ROW_LINES:
            raise _UnclosedQuote("a quote that nothing closes")
        line = self._waiting.popleft() if self._waiting else next(self.file, None)
        self.ended = line is None
        if line is None:
            raise StopIteration
        self.number += 1
        self.record.append(line)
        return line

    def again(self, lines: list[str]) -> None:
        """Read these lines next."""
        self._waiting.extendleft(reversed(lines))
        self.number -= len(lines)
        self.ended = False


def _record(
    values: dict[str, Any], columns: Mapping[str, str], row: int, root: Path, reading: Reading
) -> dict[str, Any]:
    if values.keys() == {"fault", "raw"}:
        return {"row": row, "fault": values["fault"], "raw": printable(values["raw"])}
    return record_of(values, columns, row, root, reading)


def _open_text(path: Path) -> IO[str]:
    """Text in which bytes that are not UTF-8 are kept as escapes, so that only their own row is faulty."""
    opener: Callable[..., Any] = gzip.open if path.suffix == ".gz" else open
    raw = opener(path, "rb")
    check_encoding(raw.peek(4)[:4], path)
    return io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape", newline="")
