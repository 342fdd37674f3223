"""`driftline store`: what runs keep by content."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from driftline.curate.core.errors import IntegrityError, MissingFile
from driftline.pipelines.cli.common import Json, command, group_app, option, show

store_app = group_app("Look after what runs keep by content.", "driftline store status photos2024")
StoreFolder = Annotated[Path, typer.Argument(metavar="DIR", help="A run folder, or the folder of a store.")]


def _folder(directory: Path) -> Path:
    """The store of a run folder, or the folder itself. Raises MissingFile."""
    if (directory / "index.sqlite").is_file():
        return directory
    from driftline.pipelines.config.loader import load

    folder = load(directory / "driftline.yaml").store.folder(directory)
    if not (folder / "index.sqlite").is_file():
        raise MissingFile(f"There is no store in {folder}.", "", f"A run makes it: driftline run {directory}.")
    return folder


@command(store_app, "status", "driftline store status photos2024")
def status(directory: StoreFolder, as_json: Json = False) -> None:
    """Show what is in the store: photos, misses by reason, vectors, answers, bytes, runs."""
    from driftline.curate.store.database import open_store
    from driftline.curate.store.upkeep import status as contents

    with open_store(_folder(directory)) as store:
        summary = contents(store)
    misses = ", ".join(f"{reason} {n:,}" for reason, n in summary["misses"].items())
    lines = [
        f"{summary['folder']}: {summary['photos']:,} photos, {summary['dated']:,} of them with an EXIF date, "
        f"{summary['photo_bytes']:,} bytes",
        f"misses: {misses or 'none'}",
        f"attempts: {summary['attempts']:,} at {summary['addresses']:,} addresses",
        *(f"vectors: {n:,} of {name}" for name, n in summary["vectors"].items()),
        f"answers: {summary['answers']:,}",
        f"files: {summary['files']:,}; {summary['own_bytes']:,} bytes are in no stage's folder",
        *(f"run: {path}" for path in summary["runs"]),
    ]
    show(as_json, summary, "\n".join(lines))


@command(store_app, "verify", "driftline store verify photos2024")
def verify(directory: StoreFolder, as_json: Json = False) -> None:
    """Read every byte of the store and compare checksums; exit code 1 if a file is damaged.

    Damaged files are never used. driftline heal fetches their photos again.
    """
    from driftline.curate.store.database import open_store
    from driftline.curate.store.upkeep import verify as check

    with open_store(_folder(directory)) as store:
        result = check(store)
    lines = [f"{e['state']}: {e['file']} ({e['photos']:,} photos, {e['vectors']:,} vectors)" for e in result["damaged"]]
    show(as_json, result, "\n".join([f"{result['files']:,} files read", *lines]))
    if lines:
        raise IntegrityError(f"{len(lines)} files of the store are damaged.", "", f"Run: driftline heal {directory}.")


@command(store_app, "gc", "driftline store gc photos2024 --yes")
def gc(
    directory: StoreFolder,
    yes: Annotated[bool, option("--yes", None, "Delete the files that are listed.")] = False,
    as_json: Json = False,
) -> None:
    """List the files that no run needs: photos that no stage holds any more, and their vectors.

    Nothing is deleted without --yes. A changed filter may need such photos again. Answers are never deleted.
    """
    from driftline.curate.store.database import open_store
    from driftline.curate.store.upkeep import remove, unneeded
    from driftline.pipelines.run.living import needed_photos
    from driftline.pipelines.run.runner import alone

    with open_store(_folder(directory)) as store, ExitStack() as locks:
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
    document: dict[str, Any] = {
        "files": names,
        "bytes": sum(sizes.values()),
        "freed": freed,
        "deleted": yes,
        "gone": gone,
    }
    lines = [f"{store.file(name)}  {sizes.get(name, 0):,} bytes" for name in names]
    lines += [f"{'deleted' if yes else 'not needed'}: {len(names):,} files, {freed:,} bytes on disk"]
    lines += [f"This run is not here, so its photos count as not needed: {run}" for run in gone]
    if names and not yes:
        lines.append("Add --yes to delete them.")
    show(as_json, document, "\n".join(lines))
