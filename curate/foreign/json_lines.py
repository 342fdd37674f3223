"""Rows of JSON lines: each line of the file that is not blank is in a row or in a fault, and cells stay as written."""

import gzip
import io
import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, product
from pathlib import Path
from types import NoneType
from typing import IO, Any

import pyarrow as pa

from driftline.curate.core.errors import BadInput
from driftline.curate.core.files import is_utf8
from driftline.curate.foreign.delimited import BLOCK, DelimitedFile, Fault, Part, ending, texts_of
from driftline.curate.foreign.documents import check_encoding
from driftline.curate.foreign.limits import PART

JSON = (".jsonl", ".ndjson")
# numbers stay as they are written, also those that a float would round
DECODER = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str)


class JsonLines:
    """A file of JSON objects, one a line, in parts of some megabytes. Raises BadInput for text in UTF-16, and for a
    line that is too long."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file, self._path = file, path
        check_encoding(file.read(4), path)
        self.seen: dict[str, None] = {}
        """names of columns that were in a line that was read, in their order"""

    @property
    def header(self) -> list[str]:
        """The names of all columns."""
        for _ in self.parts(()):
            pass
        return [*filter(is_utf8, self.seen)]

    def parts(
        self, columns: Sequence[str], lists: Collection[str] = (), firsts: Collection[str] = ()
    ) -> Iterator[Part]:
        """All rows in order. lists: columns that may hold lists of several; of those in `firsts` the first counts; in
        others they are the fault `unreadable_value` of their row, as records are in any."""
        self._file.seek(0)
        text, before = io.TextIOWrapper(self._file, "utf-8-sig", "surrogateescape", newline=""), 0
        try:
            while lines := text.readlines(BLOCK):
                if len(lines[-1]) > PART:
                    number = before + len(lines)
                    raise BadInput(f"{self._path}, line {number:,}, is too long.", f"Expected at most {PART:,} bytes.")
                yield self._part(lines, before, columns, lists, firsts)
                before += len(lines)
        finally:
            text.detach()

    def _part(
        self, lines: Sequence[str], before: int, columns: Sequence[str], lists: Collection[str],
        firsts: Collection[str],
    ) -> Part:  # fmt: skip
        """The rows of some lines. before: lines of the file before them."""
        places = [place for place, line in enumerate(lines) if line.strip()]
        objects = _objects([lines[place] for place in places])
        why = {i: value for i, value in enumerate(objects) if isinstance(value, str)}
        rows = [{} if isinstance(value, str) else value for value in objects]
        self.seen |= dict.fromkeys(chain.from_iterable(rows))
        cells = [[row.get(name) for row in rows] for name in columns]
        for i in (i for i, place in enumerate(places) if "\\u" in lines[place]):
            if not is_utf8(json.dumps([column[i] for column in cells], ensure_ascii=False)):  # half of a surrogate pair
                why.setdefault(i, "not_utf8")
        for name, column in zip(columns, cells, strict=True):
            for i, cell in enumerate(column) if set(map(type, column)) - {str, NoneType} else ():
                column[i] = _as_written(cell, name in firsts)
                if isinstance(column[i], dict) or (isinstance(column[i], list) and name not in lists):
                    why.setdefault(i, "unreadable_value")
        for column, i in product(cells, why):
            column[i] = None
        faults = {i: Fault(why[i], lines[places[i]].rstrip("\r\n"), before + places[i] + 1) for i in sorted(why)}
        return Part(pa.Table.from_arrays([*map(texts_of, cells)], [*columns]), faults)


@contextmanager
def text_rows(path: Path, delimiter: str = "") -> Iterator[DelimitedFile | JsonLines]:
    """The rows of CSV or TSV, or of JSON lines by the end of the name; also compressed. delimiter: of the former."""
    with path.open("rb") as plain:
        file: Any = gzip.GzipFile(fileobj=plain) if plain.peek(2)[:2] == b"\x1f\x8b" else plain
        yield JsonLines(file, path) if ending(path) in JSON else DelimitedFile(file, path, delimiter)


def _objects(lines: Sequence[str]) -> list[dict[str, Any] | str]:
    """The object of each line, or why it is none; at once if all are some."""
    if is_utf8("".join(lines)):
        with suppress(ValueError, RecursionError):
            values = DECODER.decode(f"[{',null,'.join(lines)}]")
            one_each = len(values) == 2 * len(lines) - 1 and values[1::2].count(None) == len(lines) - 1
            if one_each and set(map(type, values[::2])) == {dict}:
                return values[::2]
    return [*map(_object, lines)]


def _object(line: str) -> dict[str, Any] | str:
    if not is_utf8(line):
        return "not_utf8"
    with suppress(ValueError, RecursionError):
        if isinstance(value := DECODER.decode(line), dict):
            return value
    return "bad_json"


def _as_written(value: Any, first: bool) -> Any:
    """A value of JSON as it is written; of a list of one, or `first`, its element."""
    if isinstance(value, list):
        texts = [part if isinstance(part, str | None) else json.dumps(part) for part in value]
        return texts if len(texts) > 1 and not first else next(filter(None, texts), None)
    return json.dumps(value) if isinstance(value, bool) else value
