"""What a run will need: photos, bytes, time, people, money, the model; and whether the concepts fit."""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from driftline.curate.core.errors import DriftlineError, Shortage, explained
from driftline.curate.embedding.features import encoder_name
from driftline.curate.encoders.weights import KNOWN, hub, is_here, reachable, repository_of, unreachable
from driftline.curate.fetch.address_guard import mostly_private
from driftline.curate.fetch.job import rules_of
from driftline.curate.retrieval.retrieve import without_candidates
from driftline.curate.store.database import open_store
from driftline.curate.store.photos import looks, outcomes
from driftline.curate.validation.answers.answers import JUDGE
from driftline.curate.validation.asking.batches import estimate, wage
from driftline.curate.validation.settings import PRICES
from driftline.pipelines.annotation.batches import OpenBatch, answers_so_far, open_batch
from driftline.pipelines.forecast.sample import Cut, Sample, column_notes, cut, sample_of, without_licence
from driftline.pipelines.run.runner import Verdict, make
from driftline.pipelines.run.stage import Context, reasons_text
from driftline.pipelines.run.state import beside, done_of, folder_of
from driftline.pipelines.stages.ask import Ask, gold_of, items_of, judged_of, standing_of
from driftline.pipelines.stages.embed import BUILT_IN, spec_of

LOOKED_AT = 1_000  # photos whose bytes are counted
TYPICAL = 120_000  # bytes of a photo behind an address: Flickr's medium size


def forecast(context: Context, plans: Sequence[Verdict], borders: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What the planned stages need, as plain data; changes nothing. borders: that `driftline grow` would keep.

    Loads the model if it is on this machine, to check it and to measure its speed.
    """
    todo = {p.stage for p in plans if p.action != "skip"}
    problems: dict[str, None] = {}
    model = _model(context, bool(todo & {"embed", "retrieve"}))
    for stage in make(context):
        if stage.name in (todo if model["state"] == "here" else todo - {"embed", "retrieve"}):
            _noted(problems, stage.check)
    sample = _noted(problems, lambda: sample_of(context, todo))
    rows = None if sample is None else round(sample.photos)
    urls = [] if sample is None or "fetch" not in todo else [url for url in sample.table["url"].to_pylist() if url]
    needed = _noted(problems, lambda: again(context, None if sample is None else sample.table, rows, todo))
    share, basis = _share_of_images(context, bool(urls), needed)
    photos = None
    if sample is not None:
        sample = replace(sample, photos=sample.photos * share)
        photos = round(min(sample.photos, context.config.fetch.stop_after or sample.photos))
    pieces: Cut | None = None
    if sample is not None and any(p.stage == "bucket" for p in plans):
        pieces = _noted(problems, lambda: _cut(context, sample, todo, borders))
    buckets = None if pieces is None else pieces.sizes
    if model["state"] == "missing":
        because = f"{model['server']} does not answer"
        problems[str(unreachable(context.config.embed.model, context.config.embed.weights, because))] = None
    wanted = _wanted(context, buckets, problems) if buckets is not None and "retrieve" in todo else None
    refused = None
    if sample is not None and "publish" in todo:
        refused = without_licence(context, sample.table, problems)
    counts = records(context, todo, rows, photos, wanted)
    estimated = lambda: times(context, counts, needed or {}, bool(urls), model["state"] == "here")  # noqa: E731
    return {
        "photos": None if sample is None else {
            "expected": photos, "at_most": bool(urls) and basis is None, "addresses": rows if urls else None,
            "share_known_by": basis, "known_by": sample.known_by, "sample_dropped": sample.dropped,
        },
        "files": None if sample is None else sample.files,
        "columns": _noted(problems, lambda: column_notes(context)) or [] if "ingest" in todo else [],
        "reset_clocks": {} if sample is None else sample.reset_clocks,
        "contradicted_dates": {} if sample is None else sample.contradicted,
        "near_borders": None if pieces is None else pieces.near_borders,
        "undecided": None if pieces is None else pieces.undecided,
        "thin": None if pieces is None else pieces.thin,
        "buckets": buckets,
        "without_licence": refused,
        "candidates": wanted,
        "without_candidates": _without_candidates(context, todo),
        "questions": _noted(problems, lambda: _questions(context, wanted, todo)),
        "disk": _disk(context, sample, photos, todo),
        "model": model,
        "again": needed,
        "seconds": _noted(problems, estimated) or {},
        "reused": [p.stage for p in plans if p.action == "skip"],
        "problems": list(problems),
    }  # fmt: skip


def _noted(problems: dict[str, None], work: Callable[[], Any]) -> Any:
    try:
        return work()
    except (DriftlineError, OSError) as error:
        problems[str(error)] = None
        return None
    except ModuleNotFoundError as error:
        problems[str(explained(error))] = None
        return None


def _folder(context: Context, name: str) -> Path:
    return folder_of(context.root, name)


def _cut(context: Context, sample: Sample, todo: set[str], borders: Mapping[str, Any] | None) -> Cut:
    """The buckets of the sample. Raises Shortage if the filters leave no photo."""
    if not len(sample.table):
        drops = reasons_text(sample.dropped)
        raise Shortage(f"No photo is left of {sample.known_by} (filter drops {drops}).", "Expected dated photos.")
    return cut(context, sample.table, sample.photos / len(sample.table), "bucket" in todo, borders)


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
    images = sum(min(each, b["photos"]) for b in buckets)
    return {
        "concepts": concepts, "per_class": settings.per_class, "background": background, "each_bucket": each,
        "images": images, "short_buckets": short,
    }  # fmt: skip


def _without_candidates(context: Context, todo: set[str]) -> str:
    """A sentence that names the concepts that a finished retrieval has none for, or ""."""
    file = _folder(context, "retrieve") / "candidates.parquet"
    if "retrieve" in todo or not file.is_file():
        return ""
    return without_candidates(file, context.config.retrieve.complete_concepts())


def _share_of_images(context: Context, addresses: bool, needed: Mapping[str, Any] | None) -> tuple[float, str | None]:
    """The share of the addresses that give an image, and what it was measured on; (1, None) if it was not."""
    if not addresses:
        return 1.0, None
    if needed and needed["answered"]:
        return needed["images"] / needed["answered"], f"{needed['answered']:,} addresses that the store knows"
    faults: Counter[str] = Counter()
    for work in (_folder(context, "fetch"), beside(_folder(context, "fetch"), "next")):
        for index in sorted(work.glob("[0-9]*.parquet")):
            faults.update(fault or "" for fault in pq.ParquetFile(index).read(["fault"])["fault"].to_pylist())
    asked = faults.total() - faults["surplus"]
    return (faults[""] / asked, f"{asked:,} addresses that this run asked") if asked else (1.0, None)


def _questions(context: Context, wanted: dict[str, Any] | None, todo: set[str]) -> dict[str, Any] | None:
    """What people are asked, by the stage that asks: before retrieval the most, after it the candidates."""
    if "tally" not in todo or context.config.validation.method != "crowd":
        return None
    if "retrieve" not in todo:
        return questions(context, open_batch(context) if "ask" not in todo else None)
    return None if wanted is None or "ask" not in todo else expected_questions(context, wanted["images"])


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
    if not needed or settings.encoder != "clip" or settings.model == BUILT_IN:
        return document | {"state": "here" if needed else "not needed"}
    spec = spec_of(context)
    model = KNOWN.get(f"{spec.model}:{spec.weights}")
    repository = repository_of(spec.model, spec.weights)
    if repository is None or is_here(repository):
        return document | {"state": "here"}
    server = urlsplit(hub()).hostname
    state = "to download" if reachable(hub()) else "missing"
    return document | {"state": state, "server": server, "megabytes": model.megabytes if model else None}


def records(
    context: Context,
    todo: set[str],
    rows: int | None,
    images: int | None,
    wanted: Mapping[str, Any] | None,
) -> dict[str, int | None]:
    """How many records each planned stage reads; None: not known. rows: what fetch reads; images: what it keeps;
    wanted: `candidates` of a forecast, if they are still to be retrieved."""
    done = {name: mark["counts"] for name in ("retrieve", "tally", "publish") if (mark := done_of(context.root, name))}
    candidates = done["retrieve"]["kept"] if "retrieve" in done else None
    if "retrieve" in todo:
        candidates = None if wanted is None else wanted["images"]
    accepted = None
    if candidates is not None:
        share = done["publish"]["read"] / done["tally"]["read"] if done.keys() >= {"tally", "publish"} else 1.0
        accepted = round(candidates * share)
    early = dict.fromkeys(("ingest", "filter", "fetch"), rows)
    late = dict.fromkeys(("bucket", "embed", "retrieve"), images) | dict.fromkeys(("ask", "tally"), candidates)
    return {name: n for name, n in (early | late | {"publish": accepted}).items() if name in todo}


# Records a second of one process on the project's test machine, for stages that have not run here yet.
SPEED = {"ingest": 5_000, "filter": 200_000, "bucket": 500_000, "retrieve": 200_000, "ask": 500, "tally": 50_000,
         "publish": 200}  # fmt: skip
COPIED, ASKED = 300, 2  # photos a second: from this machine's disk; over one connection
TRIED = 8  # images that are embedded to measure the model's speed


def times(
    context: Context, counts: Mapping[str, int | None], needed: Mapping[str, Any], by_network: bool, model_is_here: bool
) -> dict[str, float | None]:
    """Stage → seconds: by its last run here, else by the speed of the test machine, or of the model; None if not known.

    counts: `records`. needed: requests and vectors that the store does not have.
    """
    settings, workers = context.config.fetch, context.executor.workers or 1
    connections = settings.threads * workers * ASKED
    speeds: dict[str, float] = dict(SPEED)
    speeds["fetch"] = min(connections, settings.rate or connections) if by_network else COPIED * workers
    estimates: dict[str, float | None] = {}
    for name, n in counts.items():
        done = done_of(context.root, name)
        left = needed.get({"fetch": "requests", "embed": "embeddings"}.get(name, ""))
        work = n if left is None else left
        if done and done["counts"]["read"]:
            speeds[name] = done["counts"]["read"] / max(done["seconds"], 1e-3)
        elif name == "embed" and work and model_is_here and context.config.embed.vectors is None:
            speeds[name] = embedding_speed(context) * workers
        estimates[name] = round(work / speeds[name], 1) if work is not None and name in speeds else None
    return estimates


def embedding_speed(context: Context) -> float:
    """Images a second of one process, measured now."""
    import torch
    from PIL import Image

    from driftline.curate.core.executor import one_thread

    encoder = spec_of(context).load()
    with one_thread():
        batch = torch.stack([encoder.prepare(Image.new("RGB", (256, 256)))] * TRIED)
        encoder.images(batch)
        started = time.perf_counter()
        encoder.images(batch)
    return TRIED / (time.perf_counter() - started)


LOOKED_UP = 5_000  # addresses of the sample


def again(context: Context, sample: pa.Table | None, photos: int | None, todo: set[str]) -> dict[str, Any] | None:
    """Requests and vectors that are needed though a store is there, and the images that it knows; None without one.

    sample: table of some of the photos with the column url. photos: how many there are, with or without an image.
    """
    place = context.store()
    if place is None or not (place.folder / "index.sqlite").is_file() or sample is None or photos is None:
        return None
    urls = list(dict.fromkeys(url for url in sample["url"].to_pylist() if url))
    some = urls[:: max(1, len(urls) // LOOKED_UP)]
    counts: dict[str, Any] = {"requests": None, "embeddings": None, "answered": 0, "images": 0}
    if some:
        private = context.config.fetch.private_addresses
        if private == "auto" and not mostly_private(urls):
            private = "refuse"
        rules = rules_of(context.config.fetch.model_copy(update={"private_addresses": private}))
        with open_store(place.folder) as store:
            answers = outcomes(store, some)
            usable = [one for one in answers.values() if one.sha256 is not None or one.rules == rules]
            digests = [one.sha256 for one in usable if one.sha256 is not None]
            counts |= {"answered": len(usable), "images": len(digests)}
            if "fetch" in todo:
                counts["requests"] = round(photos * (1 - len(usable) / len(some)))
            if "embed" in todo:
                name = encoder_name(spec_of(context).load(), context.config.embed.batch)
                misses = len(usable) - len(digests)
                images = len(some) - misses
                counts["embeddings"] = round(photos * (images - len(looks(store, name, digests))) / len(some))
    return counts


def questions(context: Context, batch: OpenBatch | None = None) -> dict[str, Any] | None:
    """What people are asked about the candidates of a run, and what it costs: the images and gold questions of the
    stage `ask` itself, without those that were answered before. None: no people are asked.

    batch: the open batch, if `ask` is done. No judge is asked: `at_most` says whether answers of judges are missing.
    """
    settings = context.config.validation
    if settings.method != "crowd":
        return None
    inputs = {name: folder_of(context.root, name) for name in Ask.needs}
    items = items_of(inputs["retrieve"]).to_pylist()
    asked, unasked = {item["id"]: item["id"] for item in items}, False
    if settings.skip_people != "never":
        judged, alone = judged_of(context, sorted(asked), inputs, ask=False)
        endpoints = [JUDGE + judge.name for judge in settings.judges if judge.kind == "endpoint"]
        unasked = any(judged["worker"].to_pylist().count(name) < len(asked) for name in endpoints)
        asked = {id_: id_ for id_ in asked if alone.asks(id_)}
    facts: dict[str, Any] = {"batch": "", "items": asked, "concepts": []} if batch is None else batch.facts
    rows, own = answers_so_far(context, facts)
    answers = Counter(row["id"] for row in rows)
    begun = own or facts.get("after") is not None  # its gold questions are drawn already
    stand = standing_of(context).answered()
    ids = set(facts["items"].values() if begun else asked) - stand
    left = {id_ for id_ in ids if answers[id_] < settings.workers}
    shown = [] if begun else [item for item in items if item["id"] in left]
    gold = set(gold_of(context, shown, inputs["bucket"], set())) if shown else set()
    basis = "the candidates; judges have not answered all" if unasked else "the candidates"
    return priced(context, len(left | gold), len(gold - left), unasked, basis)


def expected_questions(context: Context, candidates: int) -> dict[str, Any] | None:
    """The same before retrieval, when only the most is known. candidates: their number."""
    settings = context.config.validation
    if settings.method != "crowd":
        return None
    gold = round(settings.gold_share * candidates) if settings.gold is not None else 0
    reasons = [f"{candidates:,} candidates", *(["before judges answer"] if settings.skip_people != "never" else [])]
    return priced(context, candidates + gold, gold, True, ", ".join(reasons))


def priced(context: Context, images: int, gold: int, at_most: bool, known_by: str) -> dict[str, Any]:
    """Questions, hours and US dollars of a batch of `images`, `gold` among them."""
    settings = context.config.validation
    answers = images * settings.workers
    return {
        "images": images, "gold": gold, "workers": settings.workers, "answers": answers,
        "hours": round(answers * settings.seconds / 3600, 2),
        "usd": estimate(images, settings), "platform": settings.platform, "fee": PRICES[settings.platform].source,
        "usd_an_hour": wage(settings.reward_usd, settings.seconds), "least_an_hour": PRICES[settings.platform].hourly,
        "at_most": at_most, "word": "at most" if at_most else "about", "known_by": known_by,
    }  # fmt: skip


def lines(counts: dict[str, Any]) -> list[str]:
    """The same for people."""
    texts = []
    if counts["requests"] is not None:
        texts.append(f"about {counts['requests']:,} requests; the store knows the other photos")
    if counts["embeddings"] is not None:
        texts.append(f"about {counts['embeddings']:,} vectors; the store has the others")
    return texts
