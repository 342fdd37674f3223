"""`driftline grow`, `heal`, `store`: a run whose source goes on."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from curate.core.errors import IntegrityError, MissingFile, Waiting
from pipelines.cli.common import Json, PlainGroup, RunFolder, Sets, command, context_of, show
from pipelines.cli.runs import Until, record_changes

living_app = typer.Typer()
store_app = typer.Typer(cls=PlainGroup, no_args_is_help=True, help="Look after what runs keep by content.")
Workers = Annotated[int | None, typer.Option("--workers", min=1, max=256, help="Processes (default: one per core).")]
StoreFolder = Annotated[Path, typer.Argument(metavar="DIR", help="A run folder, or the folder of a store.")]


@command(living_app, "grow", "driftline grow photos2024 --max-minutes 50 --max-cost 20", panel="Build")
def grow_(
    directory: RunFolder,
    until: Until = None,
    sets: Sets = None,
    workers: Workers = None,
    minutes: Annotated[
        float | None, typer.Option("--max-minutes", min=0, help="Stop after about so long; the next call goes on.")
    ] = None,
    cost: Annotated[
        float | None, typer.Option("--max-cost", min=0, help="Refuse questions that cost more than this (USD).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run all stages on a source that has new records; safe under cron.

    Only new photos are fetched, embedded, retrieved and asked. Buckets keep their borders; buckets.grow says what later
    photos do. Exit codes: 0 done (or paused by --max-minutes), 1 failed or busy, 2 bad usage, 3 waiting for answers.
    """
    from pipelines.living import grow

    found = grow(_context(directory, sets, as_json, workers), until, minutes, cost)
    rows, images, buckets = found["rows"], found["images"], found["buckets"]
    opened = buckets["now"][len(buckets["before"]) :]
    lines = [
        f"{found['state']}: {rows['new']:,} new rows, {rows['gone']:,} gone; {images['new']:,} new images, "
        f"{images['near_copies_of_stored']:,} of them near copies of stored ones",
        f"requests {found.get('requests', 0):,}, embeddings {found.get('embeddings', 0):,}",
        f"buckets {len(buckets['now'])}, new: {', '.join(opened) or 'none'}",
    ]
    show(as_json, found, "\n".join(lines))
    if found["because"]:
        raise Waiting("The run waits for answers.", "", found["because"])


@command(living_app, "heal", "driftline heal photos2024 --reason timeout --reason http_5xx", panel="Build")
def heal_(
    directory: RunFolder,
    reasons: Annotated[
        list[str] | None,
        typer.Option(
            "--reason", metavar="REASON", help="Ask again for misses of this reason (default: temporary ones)."
        ),
    ] = None,
    days: Annotated[
        float | None, typer.Option("--older-than", min=0, metavar="DAYS", help="Only if last asked so long ago.")
    ] = None,
    mirror: Annotated[
        str | None, typer.Option("--mirror", help="Also look here: the same as --set fetch.mirror=…, for all misses.")
    ] = None,
    sets: Sets = None,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Ask again for photos that were missed, and repair what is damaged.

    The history of attempts is in driftline trace. The summary tells photos that vanished from those that failed.
    """
    from pipelines.living import heal

    changes = [*(sets or []), *([f"fetch.mirror={mirror}"] if mirror else [])]
    found = heal(_context(directory, changes, as_json, workers), reasons or (), days)
    told = ["failed", "vanished"]
    lines = [
        f"asked {found['asked']:,}, healed {found['healed']:,}",
        *(f"{e['state']}: {e['file']} ({e['photos']:,} photos)" for e in found["damaged"]),
        *(f"{word}: {', '.join(f'{k} {v:,}' for k, v in found[word].items()) or 'none'}" for word in told),
    ]
    show(as_json, found, "\n".join(lines))


def _context(directory: Path, sets: list[str] | None, quiet: bool, workers: int | None) -> Any:
    """The context of a run; without --set, with the settings of the last run."""
    from curate.core.executor import Executor

    executor = Executor(workers=workers or len(os.sched_getaffinity(0)))
    return context_of(directory, sets or record_changes(directory), quiet, executor)


def _folder(directory: Path) -> Path:
    """The store of a run folder, or the folder itself. Raises MissingFile."""
    if (directory / "index.sqlite").is_file():
        return directory
    from pipelines.config.loader import load

    folder = load(directory / "driftline.yaml").store.folder(directory)
    if not (folder / "index.sqlite").is_file():
        raise MissingFile(f"There is no store in {folder}.", "", f"A run makes it: driftline run {directory}.")
    return folder


@command(store_app, "status", "driftline store status photos2024")
def status(directory: StoreFolder, as_json: Json = False) -> None:
    """Show what is in the store: photos, misses by reason, vectors, answers, bytes, runs."""
    from curate.store.database import opened
    from curate.store.upkeep import status as contents

    with opened(_folder(directory)) as store:
        found = contents(store)
    misses = ", ".join(f"{reason} {n:,}" for reason, n in found["misses"].items())
    lines = [
        f"{found['folder']}: {found['photos']:,} photos, {found['photo_bytes']:,} bytes",
        f"misses: {misses or 'none'}",
        f"attempts: {found['attempts']:,} at {found['addresses']:,} addresses",
        *(f"vectors: {n:,} of {name}" for name, n in found["vectors"].items()),
        f"answers: {found['answers']:,}",
        f"files: {found['files']:,}; {found['own_bytes']:,} bytes are in no stage's folder",
        *(f"run: {path}" for path in found["runs"]),
    ]
    show(as_json, found, "\n".join(lines))


@command(store_app, "verify", "driftline store verify photos2024")
def verify(directory: StoreFolder, as_json: Json = False) -> None:
    """Read every byte of the store and compare checksums; exit code 1 if a file is damaged.

    Damaged files are never used. driftline heal fetches their photos again.
    """
    from curate.store.database import opened
    from curate.store.upkeep import verify as check

    with opened(_folder(directory)) as store:
        found = check(store)
    lines = [f"{e['state']}: {e['file']} ({e['photos']:,} photos, {e['vectors']:,} vectors)" for e in found["damaged"]]
    show(as_json, found, "\n".join([f"{found['files']:,} files read", *lines]))
    if lines:
        raise IntegrityError(f"{len(lines)} files of the store are damaged.", "", f"Run: driftline heal {directory}.")


@command(store_app, "gc", "driftline store gc photos2024 --yes")
def gc(
    directory: StoreFolder,
    yes: Annotated[bool, typer.Option("--yes", help="Delete the files that are listed.")] = False,
    as_json: Json = False,
) -> None:
    """List the files that no run needs: photos that no stage holds any more, and their vectors.

    Nothing is deleted without --yes. A changed filter may need such photos again. Answers are never deleted.
    """
    from curate.store.database import opened
    from curate.store.upkeep import remove, unneeded
    from pipelines.living import needed_photos
    from pipelines.runner import alone

    with opened(_folder(directory)) as store, ExitStack() as locks:
        runs = [Path(path) for (path,) in store.base.execute("SELECT path FROM runs ORDER BY path")]
        gone = [str(run) for run in runs if not (run / "driftline.yaml").is_file()]
        for run in runs:
            if str(run) not in gone:
                locks.enter_context(alone(run))
        names = unneeded(store, needed_photos(runs))
        sizes = {name: store.file(name).stat().st_size for name in names if store.file(name).is_file()}
        freed = sum(size for name, size in sizes.items() if store.file(name).stat().st_nlink == 1)
        if yes:
            remove(store, names)
    found: dict[str, Any] = {"files": names, "bytes": sum(sizes.values()), "freed": freed, "deleted": yes, "gone": gone}
    lines = [f"{'deleted' if yes else 'not needed'}: {len(names):,} files, {freed:,} bytes on disk"]
    lines += [f"This run is not here, so its photos count as not needed: {run}" for run in gone]
    if names and not yes:
        lines.append("Add --yes to delete them.")
    show(as_json, found, "\n".join(lines))
