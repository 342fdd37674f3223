"""Rows of CSV and TSV files: each line of the file is in a row or in a fault, and a quote costs its own line only."""

import csv
import io
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from driftline.curate.core.errors import BadInput, reason
from driftline.curate.foreign.documents import check_encoding, read_text
from driftline.curate.foreign.limits import CELL, PART, ROW_LINES

BLOCK = 8 << 20  # bytes of lines that are read at a time
MARK = b"\xef\xbb\xbf"  # of UTF-8
END = 10  # a line feed; numpy counts four times as fast as bytes


@dataclass(frozen=True)
class Fault:
    """What stands in the place of a row that cannot be read."""

    reason: str
    """unclosed_quote or wrong_column_count"""
    raw: str
    line: int = 0
    """of the file, from 1"""


class Part(NamedTuple):
    """Some rows of a file."""

    table: pa.Table
    """texts; a column with bytes that are not UTF-8 is binary"""
    faults: Mapping[int, Fault]
    """row of the table, which is null → why"""
    spanning: int = 0
    """cells of several lines"""
    root: Path = Path()
    """folder that paths start from"""
    image: Callable[[int], tuple[str, str]] | None = None
    """row → id and path of the image inside the table; None: images are files or addresses"""


class DelimitedFile:
    """A CSV or TSV file with a header, in parts of some megabytes.

    Arrow reads a block of lines in which each line is a row; others are read line by line, by `rows_of_lines`. Raises
    BadInput for text in UTF-16, a file without header, and a line or cell that is too long.
    """

    def __init__(self, file: IO[bytes], path: Path, delimiter: str = "") -> None:
        """delimiter: "" is a tab for .tsv, else the most frequent one of the header."""
        self._file, self._path = file, path
        self._rest = file.read(BLOCK)  # what is read and in no part yet
        check_encoding(self._rest[:4], path)
        self._rest = self._rest.removeprefix(MARK)
        self._line = 0  # lines before `_rest`
        first = self._rest.lstrip(b"\r\n").splitlines()[:1]
        usual = "\t" if ending(path) == ".tsv" else _separator(b"".join(first).decode("latin-1"))
        self.delimiter = delimiter or usual
        self._spanning = 0  # cells of several lines, of the block
        self.header: list[str] = []
        rows, _ = self._line_by_line(self._block(), 1)
        names = (name.encode("utf-8", "surrogateescape") for row in rows for name in row)
        self.header = [name.decode("utf-8", "replace").strip() for name in names]
        if not any(self.header):
            raise BadInput(f"The file {path} is empty.", "Expected a header line and one row a line.")

    def parts(self, columns: Sequence[str] | None = None) -> Iterator[Part]:
        """All rows in order. columns: of the header; None: all."""
        places = [*range(len(self.header))] if columns is None else [self.header.index(name) for name in columns]
        names = [self.header[place] for place in places]
        while block := self._block():
            faults: dict[int, Fault] = {}
            self._spanning = 0
            arrays = self._at_once(block, places)
            if arrays is None:
                rows, faults = self._line_by_line(block)
                arrays = [texts_of([None if row is None else row[place] for row in rows]) for place in places]
            yield Part(pa.Table.from_arrays(arrays, names), faults, self._spanning)

    def _block(self) -> bytes:
        """Whole lines, the last one with or without its end; b"" at the end of the file."""
        data, end = self._rest, 0
        while not end:
            if len(data) > PART:
                raise self._damage(self._line, f"a line of more than {PART:,} bytes")
            piece = self._file.read(BLOCK)
            data += piece
            end = max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1 if piece else len(data)
            if not piece:
                break
        self._rest = data[end:]
        return data[:end]

    def _at_once(self, block: bytes, places: Sequence[int]) -> list[Any] | None:
        """Texts (N,) of some columns; None unless Arrow and `rows_of_lines` read the same."""
        ends, quoted = np.count_nonzero(np.frombuffer(block, np.uint8) == END), b'"' in block
        lines = int(ends) + (not block.endswith(b"\n"))
        lone = b"\r" in block and block.count(b"\r") != block.count(b"\r\n")
        if lone or (quoted and self.delimiter == "\t"):
            return None
        names = list(map(str, range(len(self.header))))
        try:
            table = pacsv.read_csv(
                pa.BufferReader(block),
                pacsv.ReadOptions(use_threads=False, block_size=len(block), column_names=names),
                pacsv.ParseOptions(delimiter=self.delimiter, quote_char='"' if quoted else False),
                pacsv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.binary()), include_columns=[names[place] for place in places]
                ),
            )
        except (pa.ArrowInvalid, ValueError):  # lines with more cells or fewer; a separator that Arrow has not
            return None
        if quoted and len(table) != lines:
            return None
        self._line += lines
        return [_as_text(table[names[place]]) for place in places]

    def _damage(self, line: int, why: str) -> BadInput:
        return BadInput(f"{self._path} cannot be read after line {line:,} ({why}).", "Expected one row a line.")

    def _line_by_line(self, block: bytes, most: int = 0) -> tuple[list[Any], dict[int, Fault]]:
        """The rows that begin in the block, None for a fault, and the faults. Lines behind them are left in `_rest`.
        most: rows, 0: all."""
        lines: list[bytes] = block.splitlines(keepends=True)
        whole, number, last = len(lines), 0, 0
        rows: list[list[str] | None] = []
        faults: dict[int, Fault] = {}

        def fed() -> Iterator[str]:
            for place in count():
                if place == len(lines):
                    lines.extend(self._block().splitlines(keepends=True))
                if place == len(lines):
                    return
                yield lines[place].decode("utf-8", "surrogateescape")

        try:
            for number, cells in rows_of_lines(fed(), self.delimiter, self.header or None):
                if isinstance(cells, Fault):
                    faults[len(rows)] = Fault(cells.reason, cells.raw, self._line + number)
                elif number > last + 1:
                    self._spanning += sum(len(cell.splitlines()) > 1 for cell in cells)
                last = number
                rows.append(None if isinstance(cells, Fault) else cells)
                if number >= whole or len(rows) == most:
                    break
            else:
                number = len(lines)
        except csv.Error as error:
            raise self._damage(self._line + number, reason(error)) from None
        self._line += number
        self._rest = b"".join(lines[number:]) + self._rest
        return rows, faults


def ending(path: Path) -> str:
    """The suffix of a name in lower case, without `.gz`."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def texts_of(cells: Sequence[Any]) -> pa.Array:
    """(N,) texts, or lists of texts if there is one; bytes that are not UTF-8, as surrogate escapes, stay bytes."""
    if list in set(map(type, cells)):
        return pa.array([cell.split(",") if isinstance(cell, str) else cell for cell in cells], pa.list_(pa.string()))
    try:
        return pa.array(cells, pa.string())
    except UnicodeEncodeError:
        return pa.array([cell and cell.encode("utf-8", "surrogateescape") for cell in cells], pa.binary())


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Bytes as text, if all are UTF-8."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return column


def rows_of_lines(
    lines: Iterable[str], delimiter: str, header: Sequence[str] | None = None
) -> Iterator[tuple[int, list[str] | Fault]]:
    """(number of its last line, cells) of each row; empty lines are skipped. header: None is the first row.

    A quoted cell may have several lines, unless all between its first and its last one (of two, both, from three
    columns on) have the header's number of separators: then nothing closes the quote, its line is a fault, and the next
    one is read again. Between tabs, a
    quote that does not open and close a cell is a character. Separators at the end of a line are no cell. Raises
    csv.Error for a cell beyond CELL.
    """
    csv.field_size_limit(CELL)
    waiting, rest, number = deque[str](), iter(lines), 0
    while (line := waiting.popleft() if waiting else next(rest, None)) is not None:
        record, number = [line], number + 1
        cells = line.rstrip("\r\n").split(delimiter)
        closed = True
        if '"' in line and not (delimiter == "\t" and header is not None and len(cells) == len(header)):
            cells, closed = _quoted(record, waiting, rest, delimiter)
        elif '"' in line:
            cells = [cell[1:-1].replace('""', '"') if len(cell) > 1 and cell[0] == cell[-1] == '"' else cell
                     for cell in cells]  # fmt: skip
        if not any(part.strip("\r\n") for part in record):
            continue
        if header is None:
            header = cells
            number += len(record) - 1
            yield number, header
            continue
        cells = _fitted(cells, header)
        whole = len(cells) == len(header)
        inner = record[1:-1] if len(record) > 2 or len(header) < 3 else record
        swallowed = bool(inner) and all(part.count(delimiter) == len(header) - 1 for part in inner)
        if not closed or (len(record) > 1 and (swallowed or not whole)):
            waiting.extendleft(reversed(record[1:]))
            yield number, Fault("unclosed_quote", record[0].rstrip("\r\n"))
        else:
            number += len(record) - 1
            yield number, cells if whole else Fault("wrong_column_count", str(cells))


def csv_rows(
    path: Path, needed: Sequence[str], expected: str, way_out: str = "", delimiter: str = ""
) -> Iterator[tuple[int, dict[str, str]]]:
    """(number of the last line, cells by column) of each row of a CSV file in UTF-8 with a header. No row is lost: a
    quote that nothing closes and a row of another length raise BadInput naming the line.

    needed: columns that the file must have. expected, way_out: sentences for messages. delimiter: "" is the most
    frequent one of the header.
    """
    text = read_text(path, way_out)
    delimiter = delimiter or _separator(text.lstrip("\n").partition("\n")[0])
    rows = rows_of_lines(io.StringIO(text, newline=""), delimiter)
    number = 1
    try:
        header = [name.strip() for name in next((cells for _, cells in rows if isinstance(cells, list)), [])]
        for column in needed:
            if column not in header:
                raise BadInput(f"{path} has no column {column}.", expected, way_out)
        if twice := [column for column, times in Counter(header).items() if column and times > 1]:
            raise BadInput(f"{path} has more than one column {twice[0]!r}.", expected, way_out)
        for number, cells in rows:
            if isinstance(cells, Fault):
                why = cells.reason.replace("_", " ")
                problem = f"{path}, line {number}: {why} in {cells.raw[:60]!r}, with {len(header)} columns."
                raise BadInput(problem, expected, way_out)
            yield number, dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise BadInput(f"{path}, after line {number}: not a CSV row ({reason(error)}).", expected, way_out) from None


def _separator(header: str) -> str:
    return max(",;\t|", key=header.count)


def _quoted(record: list[str], waiting: deque[str], rest: Iterator[str], delimiter: str) -> tuple[list[str], bool]:
    """The cells of a row with quotes, and whether they are all closed; its further lines are added to `record`."""
    closed = True

    def lines() -> Iterator[str]:
        nonlocal closed
        yield record[0]
        while len(record) < ROW_LINES and (line := waiting.popleft() if waiting else next(rest, None)) is not None:
            record.append(line)
            yield line
        closed = False

    return next(csv.reader(lines(), delimiter=delimiter), []), closed


def _fitted(cells: list[str], header: Sequence[str]) -> list[str]:
    """A row with a cell for each column, if only separators at the end of its line, or of the header, are too many."""
    if len(cells) > len(header) and not any(cells[len(header) :]):
        return cells[: len(header)]
    if len(cells) < len(header) and not any(header[len(cells) :]):
        return [*cells, *[""] * (len(header) - len(cells))]
    return cells
