"""What `driftline status`, `verify` and `heal --gc` say of a store."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from driftline.curate.core.errors import MissingFile


def store_of(directory: Path) -> Path:
    """The store of a run folder, or the folder itself. Raises MissingFile."""
    if (directory / "index.sqlite").is_file():
        return directory
    from driftline.pipelines.config.loader import load

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
    from driftline.curate.store.database import open_store, verify

    with open_store(folder) as store:
        result = verify(store)
    lines = [f"{e['state']}: {e['file']} ({e['photos']:,} photos, {e['vectors']:,} vectors)" for e in result["damaged"]]
    return result, lines


def collected(directory: Path, delete: bool) -> tuple[dict[str, Any], list[str]]:
    """The files that no run needs, as data and as lines. Nothing is removed without `delete`."""
    from driftline.curate.store.database import open_store, remove, unneeded
    from driftline.pipelines.run.living import needed_photos
    from driftline.pipelines.run.state import alone

    with open_store(store_of(directory)) as store, ExitStack() as locks:
        runs = [Path(path) for (path,) in store.base.execute("SELECT path FROM runs ORDER BY path")]
        gone = [str(run) for run in runs if not (run / "driftline.yaml").is_file()]
        for run in runs:
            if str(run) not in gone:
                locks.enter_context(alone(run))
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
