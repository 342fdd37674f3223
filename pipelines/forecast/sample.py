"""The photos that a plan looks at: those of the last finished stage, else records of the source."""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import write_parquet
from driftline.curate.core.run_log import RunLog
from driftline.curate.metadata.clocks import contradicted
from driftline.curate.metadata.schema import TABLE, judge_times
from driftline.curate.sources.base import FileSource, Workplace
from driftline.curate.sources.folder import Folder
from driftline.pipelines.forecast.contents import place_of, resets
from driftline.pipelines.run.stage import Context, parts_of
from driftline.pipelines.run.state import folder_of
from driftline.pipelines.stages.filter import FilterTable

MOST, MOST_FILES = 100_000, 20_000  # records that are read: of a table, which are the first; of photos, evenly spread
HEAD = 4 << 20  # bytes of a text file that are read to estimate its lines
OPENERS: dict[str, Callable[..., Any]] = {".bz2": bz2.open, ".gz": gzip.open}


@dataclass(frozen=True)
class Sample:
    """The photos of a run as far as they are known, after its filters."""

    table: pa.Table
    """columns id, uploaded, until, url, path, user, label of N photos"""
    photos: float
    """how many photos there are; N of them are in the table"""
    known_by: str
    """what was counted"""
    dropped: dict[str, int]
    """of the sample: reason → records that the filters drop"""
    reset_clocks: dict[str, int] = field(default_factory=dict)
    """of the sample before its filters: day → photos of `resets`"""
    contradicted: dict[str, int] = field(default_factory=dict)
    """of the sample before its filters: two places of dates → photos of `contradicted`"""
    files: dict[str, Any] | None = None
    """of a folder of photos that is read: format → photos, and reason → suffix → files that are left out"""


def sample_of(context: Context, todo: set[str]) -> Sample | None:
    """From the last stage that is kept; else from records of the source. None if the source is not here."""
    columns = ["id", "uploaded", "until", "url", "path", "user", "label", "licence", "licence_url"]
    if "filter" not in todo:
        parts = parts_of(folder_of(context.root, "filter"))
        table = pa.concat_tables([pq.ParquetFile(part).read(columns) for part in parts])
        fetched = folder_of(context.root, "fetch") / "index.parquet"
        if "fetch" in todo or not fetched.is_file():  # --until names an earlier stage
            return Sample(table, len(table), "the stage filter", {})
        index = pq.ParquetFile(fetched).read(["id", "fault"])
        good = index.filter(pc.is_null(index["fault"]))["id"].combine_chunks()
        return Sample(table.filter(pc.is_in(table["id"], value_set=good)), len(good), "the stage fetch", {})
    if "ingest" not in todo:
        parts = parts_of(folder_of(context.root, "ingest"))
        table = _first(pq.ParquetFile(part).read() for part in parts)
        return _filtered(context, table, sum(pq.read_metadata(part).num_rows for part in parts), "the stage ingest")
    source, files = context.config.collection, None
    if not isinstance(source, FileSource) or "://" in source.path or not source.starts_at_once:
        return None
    place = place_of(context)
    if isinstance(source, Folder):
        batch, below = source.spread(MOST_FILES, place)
        table, rows, exact = pa.Table.from_batches([batch]), len(below.photos), True
        files = {"photos": below.formats(), "left_out": below.counts()}
    else:
        table = _first(pa.Table.from_batches([batch]) for batch in source.batches(MOST, 0, place))
        rows, exact = _rows_of(source, place) if len(table) == MOST else (len(table), True)
    known_by = f"{'' if exact else 'about '}{rows:,} records of the source"
    read, table = len(table), judge_times(table)
    table = table.filter(pc.is_null(table["fault"])).select(TABLE.names)
    rows = round(rows * len(table) / max(1, read))
    return _filtered(context, table, rows, known_by, files)


def _first(tables: Iterator[pa.Table]) -> pa.Table:
    """The first MOST rows."""
    parts: list[pa.Table] = []
    for part in tables:
        parts.append(part)
        if sum(map(len, parts)) >= MOST:
            break
    return pa.concat_tables(parts).slice(0, MOST)


def _filtered(
    context: Context, table: pa.Table, rows: int, known_by: str, files: dict[str, Any] | None = None
) -> Sample:
    """The sample after the stage filter, which works in a folder for the moment."""
    with TemporaryDirectory() as folder:
        write_parquet(Path(folder, "in", "table", "part-00000.parquet"), table)
        stage = FilterTable(Context(context.root, context.config, RunLog(None, quiet=True)))
        counts = stage.run({"ingest": Path(folder, "in")}, Path(folder, "out"))
        filtered = pa.concat_tables([pq.ParquetFile(part).read() for part in parts_of(Path(folder, "out"))])
    if len(table) < rows:
        known_by += f", by {'' if files else 'the first '}{len(table):,}"
    dropped = dict(counts.plain()["dropped"])
    photos = rows * len(filtered) / max(1, len(table))
    clocks = resets(table), contradicted(table["extra"].to_pylist())
    return Sample(filtered, photos, known_by, dropped, *clocks, files)


def _rows_of(source: FileSource, place: Workplace) -> tuple[int, bool]:
    """Records of a table, and whether they were counted (else estimated)."""
    total, exact = 0, True
    for path in source.inputs(place):
        files: Sequence[Path] = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        for file in files:
            n, counted = _lines(file) if file.suffix != ".parquet" else (pq.read_metadata(file).num_rows, True)
            total, exact = total + n, exact and counted
    return total, exact


def _lines(path: Path) -> tuple[int, bool]:
    """Lines of a text file, by those of its beginning."""
    with path.open("rb") as raw:
        opener = OPENERS.get(path.suffix)
        file: IO[bytes] = raw if opener is None else opener(raw)
        head = file.read(HEAD)
        if len(head) < HEAD:
            return head.count(b"\n"), True
        return int(head.count(b"\n") * path.stat().st_size / raw.tell()), False
