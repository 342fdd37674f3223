"""YFCC100M metadata files → records: lines of 23 or 25 tab-separated columns, SQLite, Parquet.

Most lines are valid, so Arrow reads a block of lines as columns. Only a block in which this would not be exact (NUL,
bad UTF-8, a single carriage return, an endless line) is halved until its bad lines are alone, and those are read one by
one. The records do not depend on the cuts between blocks.
"""

import gzip
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from driftline.curate.core.errors import BadInput, reason
from driftline.curate.core.files import is_utf8
from driftline.curate.core.parsing import plus_decode
from driftline.curate.foreign import cells, time_cells
from driftline.curate.foreign.cells import stated
from driftline.curate.foreign.names import column_once
from driftline.curate.foreign.tables import BoundedParquet
from driftline.curate.metadata.columns import DEGREES, FLICKR_BEGAN, LONGEST_RAW
from driftline.curate.metadata.schema import records_with, whole
from driftline.curate.sources.yfcc import bzip2

# Names as in the SQLite form, in the order of the parts of 2014.
NAMES = (
    "photoid", "uid", "unickname", "datetaken", "dateuploaded", "capturedevice", "title", "description", "usertags",
    "machinetags", "longitude", "latitude", "accuracy", "pageurl", "downloadurl", "licensename", "licenseurl",
    "serverid", "farmid", "secret", "secretoriginal", "ext", "marker",
)  # fmt: skip
USED = tuple(name for name in NAMES if name not in (
    "machinetags", "accuracy", "serverid", "farmid", "secret", "secretoriginal", "ext",
))  # fmt: skip


def records(
    columns: dict[str, pa.Array], first: int, raw: Callable[[int], str], faults: dict[int, tuple[str, str]]
) -> pa.RecordBatch:
    """columns: USED names → (N,) strings, "" = missing. first: number of the first row. raw(i): text of record i.

    faults: reason and raw text of records without 23 columns, which are null; further ones are added. Free text is
    decoded; tags are not, because they must be split at commas first. A record has the first fault that applies.
    """
    n = len(columns["photoid"])
    id_, uploaded, marker = columns["photoid"], columns["dateuploaded"], columns["marker"]
    is_number = pc.match_substring_regex(uploaded, r"^-?[0-9]{1,18}$")
    seconds = pc.if_else(is_number, uploaded, None).cast(pa.int64())
    taken = time_cells.parsed(pc.utf8_slice_codeunits(pa.chunked_array([columns["datetaken"]]), 0, 19), "").dated("s")
    x, y = (cells.numbers(pa.chunked_array([columns[name]]), name)[0] for name in ("longitude", "latitude"))
    checks = (
        ("bad_id", pc.invert(pc.match_substring_regex(id_, r"^[0-9]{1,90}$"))),
        ("bad_upload_time", pc.and_(pc.invert(is_number), pc.not_equal(uploaded, ""))),
        ("bad_marker", pc.invert(pc.is_in(marker, pa.array(["0", "1"])))),
    )
    for name, mask in checks:
        for i in np.flatnonzero(mask.to_numpy(zero_copy_only=False).astype(bool)).tolist():
            if i not in faults:
                faults[i] = (name, raw(i)[:LONGEST_RAW])

    decoded: dict[str, pa.Array] = {
        "id": id_,
        "row": pa.array(np.arange(first, first + n)),
        "url": stated(columns["downloadurl"]),
        "uploaded": pc.if_else(pc.and_(pc.less(seconds, FLICKR_BEGAN), pc.not_equal(seconds, 0)), None, seconds),
        "taken": pa.array(taken.value, mask=taken.form >= time_cells.NO_TIME),
        "user": stated(columns["uid"]),
        "nickname": stated(plus_decode(columns["unickname"])),
        "title": stated(plus_decode(columns["title"])),
        "description": stated(plus_decode(columns["description"])),
        "tags": stated(columns["usertags"]),
        "camera": stated(plus_decode(columns["capturedevice"])),
        "licence": stated(columns["licensename"]),
        "licence_url": stated(columns["licenseurl"]),
        "page_url": stated(columns["pageurl"]),
        "media": pc.if_else(pc.equal(marker, "0"), "photo", "video"),
        "longitude": whole(pc.if_else(pc.less_equal(pc.abs(x), DEGREES["longitude"]), x, None)),
        "latitude": whole(pc.if_else(pc.less_equal(pc.abs(y), DEGREES["latitude"]), y, None)),
    }
    return records_with(decoded, faults, n)


LONGEST_LINE = 1 << 20  # bytes; the longest of 1,000 real lines has 16 kB, longer ones are damaged
BLOCK = 4 << 20  # bytes of lines that are read at a time
FEW = 64  # lines; halving fewer costs more than reading them one by one


def blocks_of(path: Path, threads: int) -> Iterator[bytes]:
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
                lines += newlines(intact)
            pieces, size = [rest], len(rest)
    except (EOFError, OSError, bzip2.Damaged) as error:
        damage = str(error)
    last = b"".join(pieces)
    if damage:
        last = last[: last.rfind(b"\n") + 1]
    if last:
        last += b"" if last.endswith(b"\n") else b"\n"
        lines += newlines(last)
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


def newlines(block: bytes) -> int:
    """Number of newlines (four times as fast as `bytes.count`)."""
    return int(np.count_nonzero(np.frombuffer(block, np.uint8) == 10))


def width_of(block: bytes) -> int:
    """23 or 25: the width of the first line that has either; 0 if none has."""
    for line in block.split(b"\n"):
        columns = line.count(b"\t") + 1
        if columns in (23, 25):
            return columns
    return 0


def read_block(block: bytes, row: int, width: int) -> list[pa.RecordBatch]:
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
    try:
        table = pa.csv.read_csv(
            pa.BufferReader(block),
            pa.csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=[*_names(width)]),
            pa.csv.ParseOptions(delimiter="\t", quote_char=False, double_quote=False, ignore_empty_lines=False),
            pa.csv.ConvertOptions(
                check_utf8=False, column_types={name: pa.string() for name in USED}, include_columns=list(USED)
            ),
        )
    except pa.ArrowInvalid:  # a line of another width
        return None
    if not width or len(table) != len(breaks):
        return None
    starts = np.append(0, breaks[:-1] + 1)

    def raw(position: int) -> str:
        return block[starts[position] : breaks[position]].decode("utf-8", "backslashreplace")

    return records({name: table[name].combine_chunks() for name in USED}, row, raw, {})


def _one_by_one(block: bytes, row: int, width: int) -> pa.RecordBatch:
    lines = [line if len(line) > LONGEST_LINE else line.rstrip(b"\r") for line in block[:-1].split(b"\n")]
    why = {i: "wrong_column_count" for i, line in enumerate(lines) if line.count(b"\t") + 1 != width}
    why |= {i: "line_too_long" for i, line in enumerate(lines) if len(line) > LONGEST_LINE}
    return _of_fields([line.split(b"\t") for line in lines], _names(width), row, why)


def _names(width: int) -> Sequence[str]:
    return NAMES if width == 23 else ("line", NAMES[0], "hash", *NAMES[1:])


def _of_fields(
    rows: Sequence[Sequence[bytes]], names: Sequence[str], first: int, why: dict[int, str]
) -> pa.RecordBatch:  # fmt: skip
    """Records of rows of fields. why: number of a row that is none → reason; others are added."""
    lines = [b"\t".join(fields) for fields in rows]
    for i, line in enumerate(lines):
        if b"\0" in line or not is_utf8(line.decode("utf-8", "surrogateescape")):
            why.setdefault(i, "nul_byte" if b"\0" in line else "not_utf8")
    columns = {
        name: pa.array([None if i in why else fields[place].decode() for i, fields in enumerate(rows)], pa.string())
        for place, name in enumerate(names) if name in USED
    }  # fmt: skip
    raws = {i: lines[i][: 4 * LONGEST_RAW].decode("utf-8", "backslashreplace")[:LONGEST_RAW] for i in why}
    return records(columns, first, lambda i: lines[i].decode(), {i: (why[i], raws[i]) for i in why})


SQLITE = b"SQLite format 3\0"
TABLE_NAME = "yfcc100m_dataset"
FETCHED = 8192  # records of a database that are read at a time


def batches_of(path: Path, row: int, skip: int, threads: int) -> Iterator[tuple[int, pa.RecordBatch | None]]:
    """(row number of the first record, records); (row number reached, None) for records that are skipped unread."""
    with path.open("rb") as file:
        magic = file.read(16)
    if path.suffix == ".parquet" or magic[:4] == b"PAR1":
        return _parquet(path, row)
    if magic == SQLITE:
        return _sqlite(path, row, skip)
    return _lines(path, row, skip, threads)


def _lines(path: Path, row: int, skip: int, threads: int) -> Iterator[tuple[int, pa.RecordBatch | None]]:
    width, first = 0, b""
    for block in blocks_of(path, threads):
        width = width or width_of(block)
        first = first or block[: block.find(b"\n")]
        if row < skip and row + (count := newlines(block)) <= skip:
            row += count
            yield row, None
            continue
        for batch in read_block(block, row, width):
            yield row, batch
            row += len(batch)
    if first and not width:
        raise BadInput(
            f"No line of {path} has 23 or 25 tab-separated columns (line 1 has {first.count(9) + 1}).",
            "Expected YFCC100M metadata: 23 columns, or 25 with line number and hash.",
            "For other tables, set collection.source: delimited.",
        )


def _sqlite(path: Path, row: int, skip: int) -> Iterator[tuple[int, pa.RecordBatch | None]]:
    base = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True)
    base.text_factory = bytes
    done = row
    try:
        base.execute("PRAGMA trusted_schema = OFF")
        names = [waiting[1].decode("utf-8", "replace") for waiting in base.execute(f"PRAGMA table_info({TABLE_NAME})")]
        if missing := [name for name in NAMES if name not in names]:
            raise BadInput(
                f"{path} has no table {TABLE_NAME} with the column{'s' if missing[1:] else ''} {', '.join(missing)}.",
                f"Expected the 23 columns of the YFCC100M SQLite file; found {names or 'no such table'}.",
            )
        offset = max(0, skip - row)
        total = base.execute(f"SELECT count(*) FROM {TABLE_NAME}").fetchone()[0] if offset else 0
        done += min(offset, total)
        if done > row:
            yield done, None
        # rowid order is the order in which the lines were loaded
        cursor = base.execute(f"SELECT {', '.join(USED)} FROM {TABLE_NAME} ORDER BY rowid LIMIT -1 OFFSET {done - row}")
        waiting: list[tuple[Any, ...]] = []
        damage: sqlite3.DatabaseError | None = None
        while damage is None:
            waiting = []
            try:
                for values in cursor:
                    waiting.append(values)
                    if len(waiting) == FETCHED:
                        break
            except sqlite3.DatabaseError as error:
                damage = error
            if waiting:
                yield done, _of_fields([[*map(_bytes, values)] for values in waiting], USED, done, {})
                done += len(waiting)
            elif damage is None:
                return
        raise damage
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the latter: names of columns
        raise BadInput(
            f"{path} is damaged after record {done - row:,} ({reason(error)}).",
            "Expected a whole SQLite file.",
            "Download it again (its published MD5 is in docs/explanation/costs.md).",
        ) from None
    finally:
        base.close()


def _bytes(value: Any) -> bytes:
    return b"" if value is None else value if isinstance(value, bytes) else str(value).encode()


def _parquet(path: Path, row: int) -> Iterator[tuple[int, pa.RecordBatch | None]]:
    try:
        file = BoundedParquet(path)
        names = file.schema.names
        for name in ("photoid", "dateuploaded", "downloadurl"):
            column_once(names, name, path, "For other tables, set collection.source: parquet.")
        for batch in file.batches(FETCHED, [name for name in USED if name in names]):
            columns = {
                name: pc.fill_null(batch[name].cast(pa.string()), "")
                if name in names
                else pa.array(["0" if name == "marker" else ""] * len(batch))
                for name in USED
            }
            raw = partial(_as_line, list(columns.values()))
            yield row, records(columns, row, raw, {})
            row += len(batch)
    except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
        raise BadInput(f"{path} is damaged after record {row:,} ({reason(error)}).", "", "Download it again.") from None


def _as_line(columns: list[pa.Array], i: int) -> str:
    return "\t".join(str(column[i]) for column in columns)
