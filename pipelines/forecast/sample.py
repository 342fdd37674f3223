"""The photos that a plan looks at: those of the last finished stage, else records of the source; and what it says of
them: files, columns, dates, buckets."""

import bz2
import gzip
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.curate.bucketing.assign import THIN, UNDECIDED, assign
from driftline.curate.bucketing.frozen import assign_frozen
from driftline.curate.bucketing.settings import BucketSettings
from driftline.curate.bucketing.settled import settled_dates, times_of
from driftline.curate.core.atomic_io import read_json, write_parquet
from driftline.curate.core.errors import Shortage
from driftline.curate.core.run_log import RunLog
from driftline.curate.metadata.clocks import PRECISION, contradicted, reset_clocks
from driftline.curate.metadata.schema import TABLE, judge_times, whole
from driftline.curate.sources.base import FileSource, Workplace
from driftline.curate.sources.folder import Folder
from driftline.curate.sources.table import TableSource
from driftline.pipelines.run.stage import MEMORY, Context, parts_of
from driftline.pipelines.run.state import folder_of
from driftline.pipelines.stages.bucket import Bucket, settled_of
from driftline.pipelines.stages.filter import FilterTable

MOST, MOST_FILES = 100_000, 20_000  # records that are read: of a table, which are the first; of photos, evenly spread
HEAD = 4 << 20  # bytes of a text file that are read to estimate its lines
OPENERS: dict[str, Callable[..., Any]] = {".bz2": bz2.open, ".gz": gzip.open}
ZONES = 14 * 3600  # seconds that a clock may be from UTC
EXACT = ("minute", "second")  # precisions of a time that a clock showed


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


def place_of(context: Context) -> Workplace:
    """Where the source works."""
    return Workplace(context.root, context.root / "downloads", memory=context.root / MEMORY)


def _here(context: Context) -> FileSource | None:
    source = context.config.collection
    return source if isinstance(source, FileSource) and "://" not in source.path else None


def column_notes(context: Context) -> list[str]:
    """What people should know of a table's ids, times and labels. Raises BadInput if they cannot be what they seem."""
    source = _here(context)
    return list(source.survey(place_of(context)).notes) if isinstance(source, TableSource) else []


def resets(table: pa.Table) -> dict[str, int]:
    """`reset_clocks` of the columns uploaded, taken and extra, by the camera's clock where it is known."""
    pairs = zip(table["taken"].to_pylist(), table["uploaded"].to_pylist(), strict=True)
    return reset_clocks((uploaded if taken is None else taken for taken, uploaded in pairs), table["extra"].to_pylist())


@dataclass(frozen=True)
class Cut:
    """The photos of a sample in buckets."""

    sizes: list[dict[str, Any]]
    """name and photos of each labelled bucket"""
    undecided: int | None = None
    """photos that may be in several; None: the stage bucket is done"""
    thin: int | None = None
    """photos that wait for others of their period; likewise"""
    near_borders: int | None = None
    """photos of a folder whose clock, of unknown offset, shows a time within 14 hours of a bucket's border: only these
    may be in the wrong bucket. None: another source, or the stage is done"""


def cut(context: Context, table: pa.Table, share: float, again: bool, borders: Mapping[str, Any] | None = None) -> Cut:
    """table: columns id, uploaded, until of N photos, and extra, if it is known. share: photos for each of these.
    again: by the settings, or the borders that the run keeps; else as the finished stage did. borders: instead of
    these. Raises Shortage if no photo is in a bucket."""
    settings, ids = context.config.buckets, whole(table["id"])
    settings = settings.model_copy(update={"min_photos": max(1, round(settings.min_photos / share))})  # of a sample
    if not again:
        return Cut(_sizes(settings, read_json(folder_of(context.root, "bucket") / "buckets.json"), 1.0))
    times = times_of(table, settled_dates(settled_of(context.root)))
    if borders is None and (kept := Bucket(context).borders()).is_file():
        borders = read_json(kept)
    if borders is None:
        number, buckets = assign(times.first, ids, settings, times.last)
    else:
        number, buckets = assign_frozen(times.first, ids, borders, settings, times.last)
    undecided, thin = (round(int((number == why).sum()) * share) for why in (UNDECIDED, THIN))
    if not (number >= 0).any():
        problem = f"None of {len(table):,} photos is in a bucket (date_undecided {undecided:,})."
        raise Shortage(problem, "", "Compare buckets with the dates of the photos.")
    near = None
    if isinstance(context.config.collection, Folder) and "extra" in table.column_names:
        clock = np.array([_without_offset(extra or "") for extra in table["extra"].to_pylist()], bool)
        ends = {border for bucket in buckets for border in (bucket.start, bucket.end) if border is not None}
        at_borders, clocks = np.array(sorted(ends), np.int64), times.first[clock]
        first = np.searchsorted(at_borders, clocks - ZONES, "left")
        near = int((first < np.searchsorted(at_borders, clocks + ZONES, "right")).sum())
    plain = [bucket.plain() for bucket in buckets]
    return Cut(_sizes(settings, plain, share), undecided, thin, near)


def _sizes(settings: BucketSettings, buckets: list[dict[str, Any]], share: float) -> list[dict[str, Any]]:
    """Name and photos of the labelled ones."""
    return [{"name": b["name"], "photos": round(b["count"] * share)} for b in settings.labelled(buckets)]


def without_licence(context: Context, table: pa.Table, problems: dict[str, None]) -> dict[str, int] | None:
    """How many photos of a sample may not be published as they are; None for none. All: that is a problem.

    table: with licence and licence_url.
    """
    settings = context.config.release
    pairs = zip(table["licence"].to_pylist(), table["licence_url"].to_pylist(), strict=True)
    refused = sum(not settings.permits(*pair) for pair in pairs)
    if refused and refused == len(table):
        problems[
            "No photo has a licence that permits copies, so nothing can be published. If they are your own photos, set "
            "release.own: true; release.licences names licences that permit them."
        ] = None
    return {"photos": refused, "of": len(table)} if refused and not settings.licences else None


def _without_offset(extra: str) -> bool:
    """Whether a photo's record says the time of a clock, and not how far it is from UTC."""
    match = PRECISION.search(extra)
    return match is not None and match[1] in EXACT and '"date_offset"' not in extra
