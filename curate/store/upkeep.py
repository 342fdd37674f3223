"""Whether every byte of a store is what it says, and what no run needs any more."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from driftline.curate.core.files import purge
from driftline.curate.store.database import OURS, Store


def verify(store: Store) -> dict[str, Any]:
    """Read every file; returns their number and those that are missing or damaged, with the photos and vectors in them.

    What is damaged is never used; `driftline heal` fetches and computes it again.
    """
    damaged = []
    files = store.base.execute("SELECT number, name FROM files ORDER BY number").fetchall()
    for number, name in files:
        if not store.is_sound(name):
            counts = [
                int(store.base.execute(f"SELECT COUNT(*) FROM {table} WHERE file = ?", (number,)).fetchone()[0])
                for table in ("images", "vectors")
            ]
            state = "changed" if store.file(name).exists() else "missing"
            damaged.append({"file": str(store.file(name)), "state": state, "photos": counts[0], "vectors": counts[1]})
    return {"files": len(files), "damaged": damaged}


def forget_damaged(store: Store) -> list[dict[str, Any]]:
    """Remove what `verify` finds from the store, so that it is fetched or computed again; returns it."""
    damaged: list[dict[str, Any]] = verify(store)["damaged"]
    _forget(store, [Path(entry["file"]).name for entry in damaged])
    return damaged


def unneeded(store: Store, needed: Collection[str]) -> list[str]:
    """Names of the files in which no needed photo, or vector of one, is. needed: SHA-256 of photos."""
    base = store.base
    base.execute("CREATE TEMP TABLE IF NOT EXISTS needed (sha BLOB PRIMARY KEY) WITHOUT ROWID")
    base.execute("DELETE FROM needed")
    base.executemany("INSERT OR IGNORE INTO needed VALUES (?)", ((bytes.fromhex(digest),) for digest in needed))
    base.execute("CREATE TEMP TABLE IF NOT EXISTS used (file INTEGER PRIMARY KEY)")
    base.execute("DELETE FROM used")
    images = "SELECT i.number FROM images i JOIN needed n ON n.sha = i.sha"
    base.execute("INSERT OR IGNORE INTO used SELECT i.file FROM images i JOIN needed n ON n.sha = i.sha")
    base.execute(f"INSERT OR IGNORE INTO used SELECT file FROM vectors WHERE image IN ({images})")
    unused = [name for (name,) in base.execute("SELECT name FROM files WHERE number NOT IN (SELECT file FROM used)")]
    names = {name for (name,) in base.execute("SELECT name FROM files")}
    unnamed = [path.name for path in (store.folder / "files").glob("*") if path.name not in names]
    return sorted(unused + [name for name in unnamed if OURS.fullmatch(name)])


def remove(store: Store, names: Collection[str]) -> None:
    """Forget these files, then delete them: a kill between leaves files that nothing names."""
    paths = [store.file(name) for name in names]
    _forget(store, names)
    for path in paths:
        path.unlink(missing_ok=True)


def answers_to(store: Store, batches: Collection[str]) -> int:
    """How many answers to these batches a store holds."""
    counts = dict(store.base.execute("SELECT batch, COUNT(*) FROM answers GROUP BY batch"))
    return sum(counts.get(name, 0) for name in batches)


def delete_answers(store: Store, batches: Collection[str]) -> None:
    """Delete the answers to these batches for good. Raises Busy while another process reads the store."""
    with store.transaction() as base:
        base.executemany("DELETE FROM answers WHERE batch = ?", [(name,) for name in batches])
    purge(store.base, store.folder / "index.sqlite")


def _forget(store: Store, names: Collection[str]) -> None:
    with store.transaction() as base:
        for name in names:
            row = base.execute("SELECT number FROM files WHERE name = ?", (name,)).fetchone()
            if row is None:
                continue
            base.execute(
                "DELETE FROM vectors WHERE file = ? OR image IN (SELECT number FROM images WHERE file = ?)", row * 2
            )
            base.execute("DELETE FROM images WHERE file = ?", row)
            base.execute("DELETE FROM files WHERE number = ?", row)
