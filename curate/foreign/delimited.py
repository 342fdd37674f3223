"""Rows of CSV and TSV files: each line of the file is in a row or in a fault, and a quote costs its own line only."""

import csv
import io
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from driftline.curate.core.errors import BadInput, reason
from driftline.curate.foreign.documents import read_text
from driftline.curate.foreign.limits import CELL, ROW_LINES


@dataclass(frozen=True)
class Fault:
    """What stands in the place of a row that cannot be read."""

    reason: str
    """unclosed_quote or wrong_column_count"""
    raw: str


def rows_of_lines(lines: Iterable[str], delimiter: str) -> Iterator[tuple[int, list[str] | Fault]]:
    """(number of its last line, cells) of the header, if there is one, and of each row; empty lines are skipped.

    A quoted cell may have several lines, unless all between its first and its last one have the header's number of
    separators: then nothing closes the quote, its line is a fault, and the next one is read again. Between tabs, a
    quote that does not open and close a cell is a character. Separators at the end of a line are no cell. Raises
    csv.Error for a cell beyond CELL.
    """
    csv.field_size_limit(CELL)
    waiting, rest, number, header = deque[str](), iter(lines), 0, None
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
        whole, inner = closed and len(cells) == len(header), record[1:-1]
        swallowed = bool(inner) and all(part.count(delimiter) == len(header) - 1 for part in inner)
        if len(record) > 1 and (swallowed or not whole):
            waiting.extendleft(reversed(record[1:]))
            yield number, Fault("unclosed_quote", record[0].rstrip("\r\n"))
        else:
            number += len(record) - 1
            yield number, cells if whole else Fault("wrong_column_count", str(cells))


def csv_rows(
    path: Path, needed: Sequence[str], expected: str, way_out: str = "", delimiter: str = ","
) -> Iterator[tuple[int, dict[str, str]]]:
    """(number of the last line, cells by column) of each row of a CSV file in UTF-8 with a header. No row is lost: a
    quote that nothing closes and a row of another length raise BadInput naming the line.

    needed: columns that the file must have. expected, way_out: sentences for messages.
    """
    rows = rows_of_lines(io.StringIO(read_text(path, way_out), newline=""), delimiter)
    number = 1
    try:
        header = next((cells for _, cells in rows if isinstance(cells, list)), [])
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
