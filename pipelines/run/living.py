"""What keeps a run alive: it grows with its source, asks for misses again, and knows which photos it needs."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import fingerprint, read_json, remove_tree, sha256_file, write_json
from driftline.curate.core.errors import MissingFile, Unconfirmed
from driftline.curate.fetch.outcome import GONE, LIMIT_REASONS, NETWORK_REASONS, TEMPORARY_REASONS
from driftline.curate.store.database import forget_damaged, open_store, remove, unneeded, verify
from driftline.pipelines.annotation.batches import questions
from driftline.pipelines.config.loader import load
from driftline.pipelines.run.leaving import frozen_borders, keep_asked
from driftline.pipelines.run.runner import Verdict, damage_text, make, run
from driftline.pipelines.stages import STAGES, state
from driftline.pipelines.stages.base import Context, check_reasons, retry_of
from driftline.pipelines.stages.bucket import Bucket
from driftline.pipelines.stages.ingest import Ingest

STATUS = re.compile(r"http_[1-5]\d\d")  # a reason by the server's status
FAILED = sorted(NETWORK_REASONS | TEMPORARY_REASONS)  # a later attempt may succeed; other misses are gone, or refused


def needed_photos(runs: Iterable[Path]) -> set[str]:
    """SHA-256 of every photo in the stage fetch of these runs, finished or not."""
    needed: set[str] = set()
    for root in runs:
        for path in state.folder_of(root, "fetch").parent.glob("*_fetch*/*.parquet"):
            needed |= set(pq.read_table(path, columns=["sha256"])["sha256"].drop_null().to_pylist())
    return needed


def grow(context: Context, until: str | None = None, cost: float | None = None) -> dict[str, Any]:
    """Run all stages on a source that may have new records; returns a summary as plain data: the rows,
    images and buckets of the last time that it finished ("before"), and those now.

    The borders of the buckets so far are frozen; those of an attempt that failed are not. What the store knows is not
    asked for again. cost: refuse to ask questions that cost more, in US dollars. Raises Unconfirmed for these, Busy if
    another process works on the run, and what a run raises.
    """
    before: list[dict[str, Any]] = []
    names = list(STAGES)
    if cost is not None and (until is None or until in names[names.index("ask") :]):
        run(context, until="retrieve", before=lambda: before.append(keep_what_was(context)))
        asked = questions(context)
        if asked is not None and asked["usd"] > cost:
            raise Unconfirmed(
                f"{asked['images']:,} images wait for questions that cost {asked['word']} ${asked['usd']:,.2f}.",
                f"--max-usd allows ${cost:,.2f}.",
                "Raise it, or lower retrieve.per_class.",
            )
    stages = run(context, until=until, before=lambda: before.append(keep_what_was(context)))
    now = _held(context.root)
    earlier = before[0] if before else now
    summary = {what: {"before": earlier[what], "now": now[what]} for what in now}
    state.end_growth(context.root, fingerprint(Bucket(context).settings()))
    because = next((entry["because"] for entry in stages if "because" in entry), None)
    return {"state": "waiting" if because else "done", "because": because, **summary, "stages": stages}


def keep_what_was(context: Context) -> dict[str, Any]:
    """Ask what is new. If the source has changed, or an attempt is unfinished: keep the borders of the last finished
    buckets, which later photos must not move. Returns what the run held."""
    root, ingest = context.root, Ingest(context)
    ready = state.done_of(root, "ingest") is not None
    if ready:
        ingest.prepare()
    settings = fingerprint(Bucket(context).settings())
    if (stored := _unfinished(context)) is not None:
        if (path := root / state.GROWING / state.BORDERS).is_file():
            write_json(path, read_json(path) | {"grow": context.config.buckets.grow})
        write_json(root / state.GROWING / state.BEFORE, stored | {"settings": settings})
        return dict(stored["held"])
    before = _held(root)
    if ready and state.StageState(ingest).current:
        return before
    remove_tree(root / state.GROWING)
    if context.config.validation.method == "crowd":
        keep_asked(context)  # answered photos stay before new ones
    if ready and (frozen := frozen_borders(context)) is not None:
        write_json(root / state.GROWING / state.BORDERS, frozen)
    bucketed = state.done_of(root, "bucket")
    mark = None if bucketed is None else bucketed["fingerprint"]
    write_json(root / state.GROWING / state.BEFORE, {"settings": settings, "bucket": mark, "held": before})
    return before


def borders_if_grown(context: Context) -> dict[str, Any] | None:
    """The borders that a run keeps if it grows now; None for those that it has."""
    current = state.done_of(context.root, "ingest") is None or state.StageState(Ingest(context)).current
    return None if current or _unfinished(context) is not None else frozen_borders(context)


def _unfinished(context: Context) -> dict[str, Any] | None:
    """What the run was before an attempt that has not finished; None without one, and where a run has cut its buckets
    in another way since."""
    before, done = state.before_growth(context.root), state.done_of(context.root, "bucket")
    path = context.root / state.GROWING / state.BORDERS
    if before is None or done is None or not path.is_file() or done["fingerprint"] == before["bucket"]:
        return before
    return before if [path.name, sha256_file(path)] in done["outside"] else None


def _held(root: Path) -> dict[str, Any]:
    """Rows and images of the finished stages, and the names of the buckets."""
    done = {name: state.done_of(root, name) for name in ("ingest", "embed", "bucket")}
    rows, images = (0 if (mark := done[name]) is None else mark["counts"]["kept"] for name in ("ingest", "embed"))
    buckets = [] if done["bucket"] is None else read_json(state.folder_of(root, "bucket") / "buckets.json")
    return {"rows": rows, "images": images, "buckets": [bucket["name"] for bucket in buckets]}


def _requests(context: Context) -> int:
    """How often an address was asked, since the store exists."""
    if (place := context.store()) is None:
        return 0
    with open_store(place.folder) as store:
        return int(store.base.execute("SELECT COUNT(*) FROM attempts").fetchone()[0])


def heal(context: Context, reasons: Sequence[str] = ()) -> dict[str, Any]:
    """Repair damaged output, and ask again for misses; returns a summary as plain data.

    reasons: of the misses, as `retry_of` takes them (default: FAILED, those that may be temporary). Misses that are
    found again stay, with another date in their history. A fetch that has begun is finished; later stages that were not
    done before are left to a run. Raises UnknownName for a reason that neither FAILED nor a miss has, MissingFile for a
    run without any output.
    """
    place = context.store()
    fetched = state.folder_of(context.root, "fetch")
    begun = {"fetch"} if fetched.is_dir() else set()
    reached = [name for name in STAGES if name in begun or state.is_finished(context.root, name)]
    if not reached:
        raise MissingFile(f"{context.root} has no output yet.", "", f"Run: driftline run {context.root}.")
    before = _missed(fetched)
    retry = retry_of(reasons or FAILED)
    # A reason that no photo has any more was perhaps healed by the same command, which was stopped.
    odd = [r for r in retry.reasons if r not in GONE | LIMIT_REASONS and not STATUS.fullmatch(r)]
    check_reasons(odd, {*FAILED, *pc.unique(before["fault"]).to_pylist()}, "missed")
    damaged = []
    if place is not None:
        with open_store(place.folder) as store:
            damaged = forget_damaged(store)
    requests = _requests(context)
    mended: list[dict[str, str]] = []
    if state.before_growth(context.root) is not None:
        mended.append({"stage": "grow", "because": "it had not finished"})

    def planned(plans: Sequence[Verdict]) -> None:
        for stage, p in zip(make(context), plans, strict=False):
            of_stage = state.StageState(stage)  # what follows a stage that is done again has not been looked at
            lost = of_stage.damage(True) if p.action == "run" and of_stage.done else []
            if lost or p.action == "repair":
                mended.append({"stage": p.stage, "because": damage_text(lost) if lost else p.because})

    stages = run(replace(context, retry=retry, verify=True), until=reached[-1], planned=planned)
    now = _missed(fetched)
    counts = Counter(now["fault"].to_pylist())
    return {
        "mended": mended,
        "damaged": damaged,
        "asked": _requests(context) - requests,
        "healed": len(before) - pc.is_in(before["id"], value_set=now["id"].combine_chunks()).to_pylist().count(True),
        "failed": {reason: n for reason, n in sorted(counts.items()) if reason in FAILED},
        "vanished": {reason: n for reason, n in sorted(counts.items()) if reason not in FAILED},
        "stages": stages,
    }


def _missed(folder: Path) -> pa.Table:
    """id and fault of the photos without an image, in the shards that fetch has written."""
    parts = [path for path in (folder / "index.parquet",) if path.is_file()] or sorted(folder.glob("[0-9]*.parquet"))
    missed = pc.field("fault").is_valid()
    tables = [pq.read_table(path, columns=["id", "fault"], filters=missed) for path in parts]
    return pa.concat_tables([pa.schema([("id", pa.string()), ("fault", pa.string())]).empty_table(), *tables])


def store_of(directory: Path) -> Path:
    """The store of a run folder, or the folder itself. Raises MissingFile."""
    if (directory / "index.sqlite").is_file():
        return directory
    folder = load(directory / "driftline.yaml").store.folder(directory)
    if not (folder / "index.sqlite").is_file():
        raise MissingFile(f"There is no store in {folder}.", "", f"A run makes it: driftline run {directory}.")
    return folder


def size_of(folder: Path) -> dict[str, Any]:
    """Number and bytes of a store's files; those that are in no stage's folder, too, are its own."""
    stats = [path.stat() for path in folder.rglob("*") if path.is_file()]
    own = sum(stat.st_size for stat in stats if stat.st_nlink == 1)
    return {"folder": str(folder), "files": len(stats), "bytes": sum(stat.st_size for stat in stats), "own_bytes": own}


def damaged_in(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Every byte read and compared: what is damaged, as data and as lines."""
    with open_store(folder) as store:
        result = verify(store)
    lines = [f"{e['state']}: {e['file']} ({e['photos']:,} photos, {e['vectors']:,} vectors)" for e in result["damaged"]]
    return result, lines


def collected(directory: Path, delete: bool) -> tuple[dict[str, Any], list[str]]:
    """The files that no run needs, as data and as lines. Nothing is removed without `delete`."""
    with open_store(store_of(directory)) as store, ExitStack() as locks:
        runs = [Path(path) for (path,) in store.base.execute("SELECT path FROM runs ORDER BY path")]
        gone = [str(run) for run in runs if not (run / "driftline.yaml").is_file()]
        for run in runs:
            if str(run) not in gone:
                locks.enter_context(state.alone(run))
        names = unneeded(store, needed_photos(runs))
        sizes = {name: store.file(name).stat().st_size for name in names if store.file(name).is_file()}
        freed = sum(size for name, size in sizes.items() if store.file(name).stat().st_nlink == 1)
        if delete:
            remove(store, names)
    document = {"files": names, "bytes": sum(sizes.values()), "freed": freed, "deleted": delete, "gone": gone}
    lines = [f"{store.file(name)}  {sizes.get(name, 0):,} bytes" for name in names]
    lines += [f"{'deleted' if delete else 'not needed'}: {len(names):,} files, {freed:,} bytes on disk"]
    lines += [f"This run is not here, so its photos count as not needed: {run}" for run in gone]
    if names and not delete:
        lines.append("Add --yes to delete them.")
    return document, lines
