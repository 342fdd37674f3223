"""YFCC100M lines (23 or 25 tab-separated columns) → records.

Most lines are valid, so Arrow reads a block of lines as columns. Only a block in which this would not be exact (NUL,
bad UTF-8, a single carriage return, an endless line) is halved until its bad lines are alone, and those are read one by
one. The records do not depend on the cuts between blocks.
"""

import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from driftline.curate.core.errors import BadInput
from driftline.curate.metadata.columns import LONGEST_RAW
from driftline.curate.sources.yfcc import bzip2
from driftline.curate.sources.yfcc.columns import NAMES, USED, records

LONGEST_LINE = 1 << 20  # bytes; the longest of 1,000 real lines has 16 kB, longer ones are damaged
BLOCK = 4 << 20  # bytes of lines that are read at a time
FEW = 64  # lines; halving fewer costs more than reading them one by one


def blocks(path: Path, threads: int) -> Iterator[bytes]:
    """Yield whole lines, about BLOCK bytes at a time, each ending in a newline.

    An endless line is cut after LONGEST_LINE + 1 bytes, so that memory is limited. Raises BadInput for a damaged file,
    after all its intact lines.
    """
    pieces: list[bytes] = []
    size, lines, dropping = 0, 0, False
    damage = ""
    try:
        for piece in _pieces(path, threads):
            if dropping:  # the rest of an endless line
                cut = piece.find(b"\n")
                if cut < 0:
                    continue
                piece, dropping = piece[cut:], False
            pieces.append(piece)
            size += len(piece)
            if size < BLOCK:
                continue
            whole = b"".join(pieces)
            end = whole.rfind(b"\n") + 1
            rest = whole[end:]
            if len(rest) > LONGEST_LINE:
                rest, dropping = rest[: LONGEST_LINE + 1], True
            if end:
                yield (intact := whole[:end])
                lines += count(intact)
            pieces, size = [rest], len(rest)
    except (EOFError, OSError, bzip2.Damaged) as error:
        damage = str(error)
    last = b"".join(pieces)
    if damage:
        last = last[: last.rfind(b"\n") + 1]
    if last:
        last += b"" if last.endswith(b"\n") else b"\n"
        lines += count(last)
        yield last
    if damage:
        raise BadInput(
            f"{path} is damaged or cut off after line {lines:,} ({damage}).",
            "Expected a whole file.",
            f"Its first {lines:,} lines can be read; download the file again to get the rest.",
        )


def _pieces(path: Path, threads: int) -> Iterator[bytes]:
    if path.suffix == ".bz2":
        yield from bzip2.decompress(path, threads)
        return
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
        while piece := stream.read(1 << 20):
            yield piece


def count(block: bytes) -> int:
    """Number of newlines (four times as fast as `bytes.count`)."""
    return int(np.count_nonzero(np.frombuffer(block, np.uint8) == 10))


def width_of(block: bytes) -> int:
    """23 or 25: the width of the first line that has either; 0 if none has."""
    for line in block.split(b"\n"):
        columns = line.count(b"\t") + 1
        if columns in (23, 25):
            return columns
    return 0


def read(block: bytes, row: int, width: int) -> list[pa.RecordBatch]:
    """Lines of a file with `width` columns → records, in order. row: number of the first line."""
    if b"\r" in block and block.count(b"\r\n") == block.count(b"\r") == block.count(b"\n"):
        block = block.replace(b"\r\n", b"\n")
    breaks = np.flatnonzero(np.frombuffer(block, np.uint8) == 10)
    return _read(block, breaks, row, width)


def _read(block: bytes, breaks: np.ndarray, row: int, width: int) -> list[pa.RecordBatch]:
    """breaks: (N,) positions of the newlines of `block`."""
    if _is_plain(block, breaks) and (batch := _columnar(block, breaks, row, width)) is not None:
        return [batch]
    if len(breaks) <= FEW:
        return [_one_by_one(block, row, width)]
    middle = len(breaks) // 2
    cut = int(breaks[middle - 1]) + 1
    first = _read(block[:cut], breaks[:middle], row, width)
    return first + _read(block[cut:], breaks[middle:] - cut, row + middle, width)


def _is_plain(block: bytes, breaks: np.ndarray) -> bool:
    lengths = np.diff(breaks, prepend=-1)  # with their newline; Arrow reads an empty line as a record of nulls
    if b"\0" in block or b"\r" in block or lengths.max() > LONGEST_LINE or lengths.min() == 1:
        return False
    try:
        return block.isascii() or bool(block.decode())
    except UnicodeDecodeError:
        return False


def _columnar(block: bytes, breaks: np.ndarray, row: int, width: int) -> pa.RecordBatch | None:
    """Arrow's reader; None if it does not read exactly the lines of the block."""
    names = list(NAMES) if width == 23 else ["line", NAMES[0], "hash", *NAMES[1:]]
    ragged: list[int] = []

    def skip(bad: pa.csv.InvalidRow) -> str:
        ragged.append(bad.number)
        return "skip"

    table = pa.csv.read_csv(
        pa.BufferReader(block),
        pa.csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=names),
        pa.csv.ParseOptions(
            delimiter="\t",
            quote_char=False,
            double_quote=False,
            ignore_empty_lines=False,
            invalid_row_handler=skip,
        ),
        pa.csv.ConvertOptions(
            check_utf8=False, column_types={name: pa.string() for name in USED}, include_columns=list(USED)
        ),
    ) if width else None  # fmt: skip
    if table is None or len(table) + len(ragged) != len(breaks) or None in ragged:
        return None
    if not len(table):
        return None
    starts = np.append(0, breaks[:-1] + 1)

    def raw(position: int) -> str:
        return block[starts[position] : breaks[position]].decode("utf-8", "backslashreplace")

    place = np.insert(np.arange(len(table)), np.array(ragged, np.int64) - np.arange(1, len(ragged) + 1), -1)
    at = pa.array(place, mask=place < 0)
    faults = {number - 1: ("wrong_column_count", raw(number - 1)[:LONGEST_RAW]) for number in ragged}
    columns = {name: table[name].take(at).combine_chunks() if ragged else table[name].combine_chunks() for name in USED}
    return records(columns, row, raw, faults)


def _one_by_one(block: bytes, row: int, width: int) -> pa.RecordBatch:
    fields: list[list[str] | None] = []
    faults: dict[int, tuple[str, str]] = {}
    lines = block[:-1].split(b"\n")
    for i, line in enumerate(lines):
        line = line.rstrip(b"\r") if len(line) <= LONGEST_LINE else line
        if fault := _fault(line, width):
            raw = line[: 4 * LONGEST_RAW].decode("utf-8", "backslashreplace")[:LONGEST_RAW]
            faults[i] = (fault, raw)
        parts = None if fault else line.decode().split("\t")
        fields.append(parts if parts is None or width == 23 else [parts[1], *parts[3:]])
    columns = {
        name: pa.array([None if parts is None else parts[i] for parts in fields], pa.string())
        for i, name in enumerate(NAMES)
        if name in USED
    }
    return records(columns, row, lambda i: lines[i].rstrip(b"\r").decode(), faults)


def _fault(line: bytes, width: int) -> str | None:
    if len(line) > LONGEST_LINE:
        return "line_too_long"
    if line.count(b"\t") + 1 != width:
        return "wrong_column_count"
    if b"\x00" in line:
        return "nul_byte"
    try:
        line.decode()
    except UnicodeDecodeError:
        return "not_utf8"
    return None
