"""What a run will need, before it runs: photos, bytes, time, people, money, the model; and whether the concepts fit."""

import bz2
import gzip
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.curate.bucketing.assign import THIN, UNDECIDED, assign, assign_frozen, times_of
from driftline.curate.core.atomic_io import read_json, write_parquet
from driftline.curate.core.errors import DriftlineError, Shortage, explained
from driftline.curate.core.run_log import RunLog
from driftline.curate.embedding.features import encoder_name
from driftline.curate.encoders.weights import KNOWN, hub, hub_answers, is_here, repository_of, unreachable
from driftline.curate.fetch.address_guard import mostly_private
from driftline.curate.fetch.job import rules_of
from driftline.curate.foreign.tables import is_parquet
from driftline.curate.metadata.clocks import contradicted, reset_clocks
from driftline.curate.metadata.schema import TABLE, judge_times, whole
from driftline.curate.retrieval.retrieve import without_candidates
from driftline.curate.sources.base import FileSource, Workplace
from driftline.curate.sources.folder import Folder
from driftline.curate.sources.table import TableSource
from driftline.curate.store.database import open_store
from driftline.curate.store.photos import looks, outcomes
from driftline.pipelines.annotation.batches import open_batch, priced, questions
from driftline.pipelines.run.runner import Verdict, make
from driftline.pipelines.stages.base import MEMORY, Context, parts_of, reasons_text
from driftline.pipelines.stages.bucket import Bucket
from driftline.pipelines.stages.embed import BUILT_IN, measured_speed, spec_of
from driftline.pipelines.stages.filter import FilterTable
from driftline.pipelines.stages.state import done_of, folder_of, placeholders

MOST, MOST_FILES = 100_000, 20_000  # records that are read: of a table, which are the first; of photos, evenly spread
HEAD = 4 << 20  # bytes of a text file that are read to estimate its lines
OPENERS: dict[str, Callable[..., Any]] = {".bz2": bz2.open, ".gz": gzip.open}
LOOKED_AT = 1_000  # photos whose bytes are counted
TYPICAL = 120_000  # bytes of a photo behind an address: Flickr's medium size
LOOKED_UP = 5_000  # addresses that the store is asked about
# Records a second of one process on the project's test machine, for stages that have not run here yet.
SPEED = {"ingest": 5_000, "filter": 200_000, "bucket": 500_000, "retrieve": 200_000, "ask": 500, "tally": 50_000,
         "publish": 200}  # fmt: skip
COPIED, ASKED = 300, 2  # photos a second: from this machine's disk; over one connection


@dataclass(frozen=True)
class Sample:
    """The photos of a run as far as they are known, after its filters."""

    table: pa.Table
    """columns id, uploaded, until, url, path, licence, licence_url of N photos"""
    photos: float
    """how many photos there are; N of them are in the table"""
    known_by: str
    """what was counted"""
    dropped: dict[str, int] = field(default_factory=dict)
    """reason → records that the filters drop"""
    odd_dates: tuple[dict[str, int], dict[str, int]] = ({}, {})
    """before the filters: `reset_clocks` and `contradicted`"""
    files: dict[str, Any] | None = None
    """of a folder of photos that is read: format → photos, and reason → suffix → files that are left out"""


def forecast(context: Context, plans: Sequence[Verdict], borders: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What the planned stages need, as plain data; changes nothing. borders: that `driftline grow` would keep.

    Loads the model if it is on this machine, to check it and to measure its speed.
    """
    todo = {p.stage for p in plans if p.action != "skip"}
    problems: dict[str, None] = {}
    noted = partial(_noted, problems)
    model = _model(context, bool(todo & {"embed", "retrieve"}))
    for stage in make(context):
        if stage.name in (todo if model["state"] == "here" else todo - {"embed", "retrieve"}):
            noted(stage.check)
    sample: Sample | None = noted(lambda: sample_of(context, todo))
    rows = None if sample is None else round(sample.photos)
    addresses = sample is not None and "fetch" in todo and any(sample.table["url"].to_pylist())
    known = noted(lambda: _known(context, sample, todo))
    share, basis = 1.0, None
    if addresses and known and known["answered"]:
        share, basis = known["images"] / known["answered"], f"{known['answered']:,} URLs with a stored answer"
    photos: int | None = None
    pieces: dict[str, Any] = dict.fromkeys(("buckets", "undecided", "thin"))
    if sample is not None:
        sample = replace(sample, photos=sample.photos * share)
        photos = round(min(sample.photos, context.config.fetch.stop_after or sample.photos))
        if any(p.stage == "bucket" for p in plans):
            pieces |= noted(lambda: _cut(context, sample, "bucket" in todo, borders)) or {}
    if model["state"] == "missing":
        problems[str(unreachable(context.config.embed.model, context.config.embed.weights))] = None
    asks = pieces["buckets"] is not None and "retrieve" in todo
    wanted = _wanted(context, pieces["buckets"], problems) if asks else None
    refused = None if sample is None or "publish" not in todo else _without_licence(context, sample.table, problems)
    counts = _records(context, todo, rows, photos, wanted)
    seconds = noted(lambda: _times(context, counts, known or {}, addresses, model["state"] == "here"))
    source = context.config.collection
    notes: list[str] = []
    if "ingest" in todo and isinstance(source, TableSource) and "://" not in source.path:
        notes = noted(lambda: list(source.survey(_place(context)).notes)) or []
    return {
        "photos": None if sample is None else {
            "expected": photos, "at_most": addresses and basis is None, "addresses": rows if addresses else None,
            "share_known_by": basis, "known_by": sample.known_by, "sample_dropped": sample.dropped,
        },
        "files": None if sample is None else sample.files,
        "columns": notes,
        "reset_clocks": {} if sample is None else sample.odd_dates[0],
        "contradicted_dates": {} if sample is None else sample.odd_dates[1],
        **pieces,
        "without_licence": refused,
        "candidates": wanted,
        "without_candidates": _without_candidates(context, todo),
        "placeholders": placeholders(context.root),
        "questions": noted(lambda: _asked(context, wanted, todo)),
        "disk": _disk(context, sample, photos, todo),
        "model": model,
        "again": known,
        "seconds": seconds or {},
        "problems": list(problems),
    }  # fmt: skip


def _without_candidates(context: Context, todo: set[str]) -> str:
    """A sentence that names the concepts that a finished retrieval has none for, or ""."""
    file = folder_of(context.root, "retrieve") / "candidates.parquet"
    if "retrieve" in todo or not file.is_file():
        return ""
    return without_candidates(file, context.config.retrieve.complete_concepts())


def _noted(problems: dict[str, None], work: Callable[[], Any]) -> Any:
    try:
        return work()
    except (DriftlineError, OSError, ModuleNotFoundError) as error:
        problems[str(explained(error) if isinstance(error, ModuleNotFoundError) else error)] = None
        return None


def sample_of(context: Context, todo: set[str]) -> Sample | None:
    """From the last stage that is kept; else from records of the source. None if the source is not here."""
    if "filter" not in todo:
        parts = parts_of(folder_of(context.root, "filter"))
        columns = ["id", "uploaded", "until", "url", "path", "licence", "licence_url"]
        table = pa.concat_tables([pq.ParquetFile(part).read(columns) for part in parts])
        fetched = folder_of(context.root, "fetch") / "index.parquet"
        if "fetch" in todo or not fetched.is_file():  # --until names an earlier stage
            return Sample(table, len(table), "the stage filter")
        index = pq.ParquetFile(fetched).read(["id", "fault"])
        good = index.filter(pc.is_null(index["fault"]))["id"].combine_chunks()
        return Sample(table.filter(pc.is_in(table["id"], value_set=good)), len(good), "the stage fetch")
    if "ingest" not in todo:
        parts = parts_of(folder_of(context.root, "ingest"))
        table = _first(pq.ParquetFile(part).read() for part in parts)
        return _filtered(context, table, sum(pq.read_metadata(part).num_rows for part in parts), "the stage ingest")
    source, files = context.config.collection, None
    if not isinstance(source, FileSource) or "://" in source.path or not source.starts_at_once:
        return None
    place = _place(context)
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
    return _filtered(context, table, round(rows * len(table) / max(1, read)), known_by, files)


def _place(context: Context) -> Workplace:
    """Where the source works."""
    return Workplace(context.root, context.root / "downloads", memory=context.root / MEMORY)


def _first(tables: Iterator[pa.Table]) -> pa.Table:
    """The first MOST rows."""
    parts: list[pa.Table] = []
    while sum(map(len, parts)) < MOST and (part := next(tables, None)) is not None:
        parts.append(part)
    return pa.concat_tables(parts).slice(0, MOST)


def _rows_of(source: FileSource, place: Workplace) -> tuple[int, bool]:
    """Records of a table, and whether they were counted: of long texts they are estimated by those of the beginning."""
    total, exact = 0, True
    files = (file for one in source.inputs(place) for file in ([one] if one.is_file() else one.rglob("*")))
    for path in (file for file in files if file.is_file()):
        if is_parquet(path):
            total += pq.read_metadata(path).num_rows
        else:
            with path.open("rb") as raw:
                opener = OPENERS.get(path.suffix.lower())
                head: bytes = (raw if opener is None else opener(raw)).read(HEAD)
                scale = path.stat().st_size / raw.tell() if len(head) == HEAD else 1.0
            total, exact = total + int(head.count(b"\n") * scale), exact and len(head) < HEAD
    return total, exact


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
    photos = rows * len(filtered) / max(1, len(table))
    extra, clocks = table["extra"].to_pylist(), pc.coalesce(table["taken"], table["uploaded"]).to_pylist()
    odd = reset_clocks(clocks, extra), contradicted(extra)
    return Sample(filtered, photos, known_by, counts.plain()["dropped"], odd, files)


def _cut(context: Context, sample: Sample, again: bool, borders: Mapping[str, Any] | None) -> dict[str, Any]:
    """Name and photos of each labelled bucket; and how many photos may be in several ("undecided"), or wait for others
    of their period ("thin"). again: by the settings, or the borders that the run keeps; else as the finished stage did.
    borders: instead of these. Raises Shortage if no photo is in a bucket."""
    table, settings = sample.table, context.config.buckets
    if not len(table):
        drops = reasons_text(sample.dropped)
        raise Shortage(f"No photo is left of {sample.known_by} (filter drops {drops}).", "Expected dated photos.")
    share = sample.photos / len(table)
    settings = settings.model_copy(update={"min_photos": max(1, round(settings.min_photos / share))})  # of a sample
    if not again:
        finished = settings.labelled(read_json(folder_of(context.root, "bucket") / "buckets.json"))
        return {"buckets": [{"name": b["name"], "photos": b["count"]} for b in finished]}
    (first, last), ids = times_of(table), whole(table["id"])
    if borders is None and (kept := Bucket(context).borders()).is_file():
        borders = read_json(kept)
    if borders is None:
        number, buckets = assign(first, ids, settings, last)
    else:
        number, buckets = assign_frozen(first, ids, borders, settings, last)
    undecided, thin = (round(int((number == why).sum()) * share) for why in (UNDECIDED, THIN))
    if not (number >= 0).any():
        problem = f"None of {len(table):,} photos is in a bucket (date_undecided {undecided:,})."
        raise Shortage(problem, "", "Compare buckets with the dates of the photos.")
    labelled = settings.labelled([bucket.plain() for bucket in buckets])
    sizes = [{"name": b["name"], "photos": round(b["count"] * share)} for b in labelled]
    return {"buckets": sizes, "undecided": undecided, "thin": thin}


def _without_licence(context: Context, table: pa.Table, problems: dict[str, None]) -> dict[str, int] | None:
    """How many photos of a sample may not be published as they are; None for none. All: that is a problem."""
    settings = context.config.release
    pairs = zip(table["licence"].to_pylist(), table["licence_url"].to_pylist(), strict=True)
    refused = sum(not settings.permits(*pair) for pair in pairs)
    if refused and refused == len(table):
        problems[
            "No photo has a licence that permits copies, so nothing can be published. If they are your own photos, set "
            "release.own: true; release.licences names licences that permit them."
        ] = None
    return {"photos": refused, "of": len(table)} if refused and not settings.licences else None


def _wanted(context: Context, buckets: list[dict[str, Any]], problems: dict[str, None]) -> dict[str, Any]:
    """Candidates in each bucket, and the buckets that have too few photos for them."""
    settings = context.config.retrieve
    concepts = len(settings.concepts)
    background = concepts * settings.negatives_each
    each = concepts * settings.per_class + background
    short = [b["name"] for b in buckets if b["photos"] < each]
    if short and settings.short == "fail":
        which = f"{len(short)} of {len(buckets)} buckets ({', '.join(short[:3])})"
        way_out = "Lower retrieve.per_class, or set retrieve.short to fewer."
        problems[f"Too few photos for {each:,} candidates in {which}. {way_out}"] = None
    return {
        "concepts": concepts, "per_class": settings.per_class, "background": background, "each_bucket": each,
        "images": sum(min(each, b["photos"]) for b in buckets), "short_buckets": short,
    }  # fmt: skip


def _known(context: Context, sample: Sample | None, todo: set[str]) -> dict[str, Any] | None:
    """Requests and vectors that are needed though a store is there, and the images that it knows; None without one."""
    place = context.store()
    if place is None or not (place.folder / "index.sqlite").is_file() or sample is None:
        return None
    urls = list(dict.fromkeys(url for url in sample.table["url"].to_pylist() if url))
    some = urls[:: max(1, len(urls) // LOOKED_UP)]
    counts: dict[str, Any] = {"requests": None, "embeddings": None, "answered": 0, "images": 0}
    if not some:
        return counts
    private = context.config.fetch.private_addresses
    if private == "auto" and not mostly_private(urls):
        private = "refuse"
    rules, photos = rules_of(context.config.fetch.model_copy(update={"private_addresses": private})), sample.photos
    with open_store(place.folder) as store:
        usable = [one for one in outcomes(store, some).values() if one.sha256 is not None or one.rules == rules]
        digests = [one.sha256 for one in usable if one.sha256 is not None]
        counts |= {"answered": len(usable), "images": len(digests)}
        if "fetch" in todo:
            counts["requests"] = round(photos * (1 - len(usable) / len(some)))
        if "embed" in todo:
            name = encoder_name(spec_of(context).load(), context.config.embed.batch)
            images = len(some) - len(usable) + len(digests)
            counts["embeddings"] = round(photos * (images - len(looks(store, name, digests))) / len(some))
    return counts


def _disk(context: Context, sample: Sample | None, photos: int | None, todo: set[str]) -> dict[str, Any]:
    """Bytes that fetch will store, and the room for them."""
    root = next(p for p in (context.root, *context.root.absolute().parents) if p.exists())
    free = shutil.disk_usage(root).free
    if sample is None or photos is None or "fetch" not in todo:
        return {"bytes": 0 if "fetch" not in todo else None, "free": free, "known_by": None}
    paths = [path for path in sample.table["path"].slice(0, LOOKED_AT).to_pylist() if path and Path(path).is_file()]
    each = float(np.mean([Path(path).stat().st_size for path in paths])) if paths else TYPICAL
    return {"bytes": round(each * photos), "free": free, "known_by": "files" if paths else f"{TYPICAL:,} bytes a photo"}


def _model(context: Context, needed: bool) -> dict[str, Any]:
    """Name and state of the model: here, to download, missing (its server does not answer), not needed."""
    settings = context.config.embed
    name = settings.model + (f" ({settings.weights})" if settings.weights else "")
    document: dict[str, Any] = {"name": name, "state": "not needed", "server": None, "megabytes": None}
    if not needed:
        return document
    spec = spec_of(context)
    is_own = settings.encoder != "clip" or settings.model == BUILT_IN
    repository = None if is_own else repository_of(spec.model, spec.weights)
    if repository is None or is_here(repository):
        return document | {"state": "here"}
    model, state = KNOWN.get(f"{spec.model}:{spec.weights}"), "to download" if hub_answers() else "missing"
    size = model.megabytes if model else None
    return document | {"state": state, "server": urlsplit(hub()).hostname, "megabytes": size}


def _records(
    context: Context, todo: set[str], rows: int | None, images: int | None, wanted: Mapping[str, Any] | None
) -> dict[str, int | None]:
    """How many records each planned stage reads; None: not known. rows: what fetch reads; images: what it keeps;
    wanted: `candidates` of a forecast, if they are still to be retrieved."""
    done = {name: mark["counts"] for name in ("retrieve", "tally", "publish") if (mark := done_of(context.root, name))}
    candidates = done["retrieve"]["kept"] if "retrieve" in done else None
    if "retrieve" in todo:
        candidates = None if wanted is None else wanted["images"]
    share = done["publish"]["read"] / done["tally"]["read"] if done.keys() >= {"tally", "publish"} else 1.0
    early = dict.fromkeys(("ingest", "filter", "fetch"), rows)
    late = dict.fromkeys(("bucket", "embed", "retrieve"), images) | dict.fromkeys(("ask", "tally"), candidates)
    last = {"publish": None if candidates is None else round(candidates * share)}
    return {name: n for name, n in (early | late | last).items() if name in todo}


def _times(
    context: Context, counts: Mapping[str, int | None], known: Mapping[str, Any], by_network: bool, model_is_here: bool
) -> dict[str, float | None]:
    """Stage → seconds: by its last run here, else by the speed of the test machine, or of the model; None if not known.

    counts: `_records`. known: of `_known`.
    """
    settings, workers = context.config.fetch, context.executor.workers or 1
    connections = settings.threads * workers * ASKED
    speeds: dict[str, float] = dict(SPEED)
    speeds["fetch"] = min(connections, settings.rate or connections) if by_network else COPIED * workers
    estimates: dict[str, float | None] = {}
    for name, n in counts.items():
        done = done_of(context.root, name)
        left = known.get({"fetch": "requests", "embed": "embeddings"}.get(name, ""))
        work = n if left is None else left
        if done and done["counts"]["read"]:
            speeds[name] = done["counts"]["read"] / max(done["seconds"], 1e-3)
        elif name == "embed" and work and model_is_here and context.config.embed.vectors is None:
            speeds[name] = measured_speed(context) * workers
        estimates[name] = round(work / speeds[name], 1) if work is not None and name in speeds else None
    return estimates


def _asked(context: Context, wanted: dict[str, Any] | None, todo: set[str]) -> dict[str, Any] | None:
    """What people are asked, by the stage that asks: before retrieval the most, after it the candidates."""
    settings = context.config.validation
    if "tally" not in todo or settings.method != "crowd":
        return None
    if "retrieve" not in todo:
        return questions(context, open_batch(context) if "ask" not in todo else None)
    if wanted is None:
        return None
    gold = round(settings.gold_share * wanted["images"]) if settings.gold is not None else 0
    basis = f"{wanted['images']:,} candidates{', before judges answer' if settings.skip_people != 'never' else ''}"
    return priced(context, wanted["images"] + gold, gold, True, basis)
