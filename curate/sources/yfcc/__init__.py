"""YFCC100M metadata in every form that copies of it have: lines, SQLite, Parquet."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import Field

from curate.core.errors import BadInput, MissingFile, reason
from curate.core.settings import PathText, Stages
from curate.metadata.schema import SOURCE, rebatch
from curate.sources.base import HERE, FileSource, Workplace
from curate.sources.yfcc import lines
from curate.sources.yfcc.columns import NAMES, USED, records
from curate.sources.yfcc.side import Side, extra

SQLITE = b"SQLite format 3\0"
TABLE_NAME = "yfcc100m_dataset"
SideName = Literal["autotags", "exif", "hash", "lines", "places"]
FETCHED = 8192  # records of a database that are read at a time


WHERE_TO_GET = (
    "Check collection.path. Without keys, the whole table (SQLite, 66 GB) is at https://multimedia-commons.s3-us-west-2."
    "amazonaws.com/tools/etc/yfcc100m_dataset.sql; the text form is yfcc100m_dataset.tgz in s3://mmcommons."
)


class Yfcc(FileSource):
    """YFCC100M metadata: 23- or 25-column lines (plain, .bz2, .gz), the SQLite file, or Parquet subsets.

    Of a folder, the `*dataset*` and `*.parquet` files are read in name order; row numbers count records over all files,
    from 0. [Thomee et al. 2016; the SQLite form has the 23 columns under the names of `columns.NAMES`]
    """

    damaged: Literal["stop", "keep"] = "stop"
    """a file is cut off or fails its checksum: stop with an error, or keep the records before and go on"""
    side: Annotated[dict[SideName, PathText], Stages(("publish",))] = Field(default_factory=dict)
    """side files to join by id into the column extra, e.g. {autotags: yfcc100m_autotags.bz2}"""

    def identity(self, stage: str, of_0_1: bool = False) -> dict[str, Any]:
        """The fingerprint of ingest has the names of side files only: their content enters it, too."""
        return super().identity(stage, of_0_1) | ({"side": sorted(self.side)} if stage == "ingest" else {})

    def inputs(self, at: Workplace = HERE) -> list[Path]:
        """The files, in the order in which they are read, and the side files."""
        return [*self.files(at), *(path for name in self.side.values() if (path := at.path(name)).is_file())]

    def files(self, at: Workplace) -> list[Path]:
        """The files, in the order in which they are read."""
        path = at.path(self.path)
        if path.is_dir():
            files = sorted(p for p in path.iterdir() if p.is_file() and ("dataset" in p.name or p.suffix == ".parquet"))
            if not files:
                raise MissingFile(
                    f"The folder {path} holds no YFCC100M metadata.",
                    "Expected files with 'dataset' in their name (yfcc100m_dataset-0.bz2, …) or Parquet files.",
                    "Set collection.path to the file itself.",
                )
            return files
        if not path.is_file():
            raise MissingFile(f"There is no file {path}.", "Expected YFCC100M metadata.", WHERE_TO_GET)
        return [path]

    def batches(self, rows: int = 65_536, skip: int = 0, at: Workplace = HERE) -> Iterator[pa.RecordBatch]:
        """Yield records in file order; a line that is not a YFCC record keeps its place and carries a fault."""
        records = self._read(at, skip)
        yield from rebatch(self._joined(records, at, skip) if self.side else records, rows)

    def _joined(self, batches: Iterator[pa.RecordBatch], at: Workplace, skip: int) -> Iterator[pa.RecordBatch]:
        sides = [Side(name, at.path(path), at.work, at.threads) for name, path in sorted(self.side.items())]
        for batch in batches:
            column = extra(batch["id"], sides, skip)
            skip = 0
            yield batch.set_column(SOURCE.get_field_index("extra"), SOURCE.field("extra"), column)

    def _read(self, at: Workplace, skip: int) -> Iterator[pa.RecordBatch]:
        row = 0
        for path in self.files(at):
            begin = row
            try:
                for start, batch in _open(path, row, skip, at.threads):
                    row = start + (len(batch) if batch is not None else 0)
                    if batch is not None and row > skip:
                        yield batch.slice(max(0, skip - start))
            except BadInput as error:
                if self.damaged == "stop" or row == begin:
                    raise
                if row >= skip:
                    fault = {"row": row, "fault": "damaged_from_here", "raw": str(error)}
                    yield pa.RecordBatch.from_pylist([fault], schema=SOURCE)
                row += 1
            if row == begin:
                raise BadInput(f"The file {path} is empty.", "Expected YFCC100M records.", "Download it again.")


def _open(path: Path, row: int, skip: int, threads: int) -> Iterator[tuple[int, pa.RecordBatch | None]]:
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
        names = [found[1].decode("utf-8", "replace") for found in base.execute(f"PRAGMA table_info({TABLE_NAME})")]
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
        found: list[tuple[Any, ...]] = []
        damage: sqlite3.DatabaseError | None = None
        while damage is None:
            found = []
            try:
                for values in cursor:
                    found.append(values)
                    if len(found) == FETCHED:
                        break
            except sqlite3.DatabaseError as error:
                damage = error
            if found:
                yield done, _from_rows(found, done)
                done += len(found)
            elif damage is None:
                return
        raise damage
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the latter: names of columns
        raise BadInput(
            f"{path} is damaged after record {done - row:,} ({reason(error)}).",
            "Expected a whole SQLite file.",
            "Download it again (its published MD5 is in docs/guides/scale.md), or set collection.damaged: keep.",
        ) from None
    finally:
        base.close()


def _from_rows(found: list[tuple[Any, ...]], row: int) -> pa.RecordBatch:
    texts: list[list[str]] = []
    good: list[int] = []
    earlier: list[dict[str, object]] = []
    for number, values in enumerate(found, row):
        raw = [b"" if v is None else v if isinstance(v, bytes) else str(v).encode() for v in values]
        fault = "nul_byte" if any(b"\0" in v for v in raw) else None
        try:
            fields = [v.decode() for v in raw]
        except UnicodeDecodeError:
            fault = fault or "not_utf8"
        if fault:
            earlier.append({"row": number, "fault": fault, "raw": b"\t".join(raw).decode("utf-8", "backslashreplace")})
        else:
            texts.append(fields)
            good.append(number)
    columns = {name: pa.array([t[i] for t in texts], pa.string()) for i, name in enumerate(USED)}
    return records(columns, np.array(good, np.int64), lambda i: "\t".join(texts[i]), earlier)


def _parquet(path: Path, row: int) -> Iterator[tuple[int, pa.RecordBatch | None]]:
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not a whole Parquet file ({reason(error)}).", "", "Download it again.") from None
    names = set(file.schema_arrow.names)
    if missing := {"photoid", "dateuploaded", "downloadurl"} - names:
        raise BadInput(
            f"{path} has no column {', '.join(sorted(missing))}.",
            f"Expected the columns of the YFCC100M SQLite file; found {sorted(names)}.",
            "For other tables, set collection.source: parquet.",
        )
    try:
        for batch in file.iter_batches(FETCHED, columns=[name for name in USED if name in names]):
            columns = {
                name: pc.fill_null(batch[name].cast(pa.string()), "")
                if name in names
                else pa.array(["0" if name == "marker" else ""] * len(batch))
                for name in USED
            }
            raw = partial(_as_line, list(columns.values()))
            yield row, records(columns, np.arange(row, row + len(batch)), raw)
            row += len(batch)
    except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
        raise BadInput(f"{path} is damaged after record {row:,} ({reason(error)}).", "", "Download it again.") from None


def _as_line(columns: list[pa.Array], i: int) -> str:
    return "\t".join(str(column[i]) for column in columns)
