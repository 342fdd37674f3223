"""Records of YFCC100M metadata files."""

import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from driftline.curate.core.errors import BadInput, reason
from driftline.curate.foreign.tables import BoundedParquet
from driftline.curate.sources.yfcc import lines
from driftline.curate.sources.yfcc.columns import NAMES, USED, records

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
    for block in lines.blocks(path, threads):
        width = width or lines.width_of(block)
        first = first or block[: block.find(b"\n")]
        if row < skip and row + (count := lines.count(block)) <= skip:
            row += count
            yield row, None
            continue
        for batch in lines.read(block, row, width):
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
                yield done, _from_rows(waiting, done)
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


def _from_rows(rows: list[tuple[Any, ...]], row: int) -> pa.RecordBatch:
    texts: list[list[str] | None] = []
    faults: dict[int, tuple[str, str]] = {}
    raws = [[b"" if v is None else v if isinstance(v, bytes) else str(v).encode() for v in values] for values in rows]
    for i, raw in enumerate(raws):
        fault = "nul_byte" if any(b"\0" in v for v in raw) else None
        try:
            fields = [v.decode() for v in raw]
        except UnicodeDecodeError:
            fault = fault or "not_utf8"
        if fault:
            faults[i] = (fault, b"\t".join(raw).decode("utf-8", "backslashreplace"))
        texts.append(None if fault else fields)
    columns = {name: pa.array([t and t[i] for t in texts], pa.string()) for i, name in enumerate(USED)}
    return records(columns, row, lambda i: b"\t".join(raws[i]).decode(), faults)


def _parquet(path: Path, row: int) -> Iterator[tuple[int, pa.RecordBatch | None]]:
    try:
        file = BoundedParquet(path)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not a whole Parquet file ({reason(error)}).", "", "Download it again.") from None
    names = set(file.schema.names)
    if missing := {"photoid", "dateuploaded", "downloadurl"} - names:
        raise BadInput(
            f"{path} has no column {', '.join(sorted(missing))}.",
            f"Expected the columns of the YFCC100M SQLite file; found {sorted(names)}.",
            "For other tables, set collection.source: parquet.",
        )
    try:
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
