"""The index of a store: one SQLite file in WAL mode, and the files of stages, each linked under its SHA-256.

`index.sqlite` says where the bytes are; `files/` holds hard links to finished tars and vectors of stages, so
that no photo is stored twice on one disk. A file is linked before the index names it: after a kill, a file that nothing
names is the worst that is left, and `gc` removes it.
"""

import errno
import json
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driftline.curate.core.atomic_io import TEMPORARY, check_format, no_room, sha256_file, writing
from driftline.curate.core.errors import BadInput, Busy, reason
from driftline.curate.core.files import connect, purge
from driftline.curate.core.system import sync_folder

FORMAT = 4
PATIENCE = 60.0  # seconds that a process waits for another one's transaction
SCHEMA = """
CREATE TABLE files (number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE);
CREATE TABLE images (
    number INTEGER PRIMARY KEY AUTOINCREMENT, sha BLOB NOT NULL UNIQUE, file INTEGER NOT NULL, start INTEGER NOT NULL,
    size INTEGER NOT NULL, suffix TEXT NOT NULL, width INTEGER NOT NULL, height INTEGER NOT NULL,
    phash INTEGER, unusable TEXT
);
CREATE TABLE attempts (
    address BLOB NOT NULL, number INTEGER NOT NULL, time INTEGER NOT NULL, rules BLOB NOT NULL, image INTEGER,
    fault TEXT, detail TEXT, source BLOB, changes TEXT NOT NULL,
    PRIMARY KEY (address, number)
) WITHOUT ROWID;
CREATE TABLE encoders (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE vectors (
    encoder INTEGER NOT NULL, image INTEGER NOT NULL, file INTEGER NOT NULL, row INTEGER NOT NULL,
    PRIMARY KEY (encoder, image)
) WITHOUT ROWID;
CREATE TABLE answers (
    sha BLOB NOT NULL, question BLOB NOT NULL, worker TEXT NOT NULL, batch TEXT NOT NULL, number INTEGER NOT NULL,
    options TEXT NOT NULL, assignment TEXT, labels TEXT NOT NULL, sensitive INTEGER NOT NULL, seconds INTEGER,
    fault TEXT, venue TEXT NOT NULL, time INTEGER NOT NULL, PRIMARY KEY (sha, question, worker, batch, number)
) WITHOUT ROWID;
CREATE TABLE batches (name TEXT PRIMARY KEY, facts TEXT NOT NULL, digests TEXT NOT NULL, options TEXT NOT NULL);
CREATE TABLE runs (path TEXT PRIMARY KEY, time INTEGER NOT NULL);
"""
OURS = re.compile(rf"({re.escape(TEMPORARY)}[0-9]+-)?[0-9a-f]{{64}}(\.[A-Za-z0-9]{{1,16}})?")  # what `link` writes
FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


@dataclass(frozen=True)
class Place:
    """A store as tasks name it; plain data."""

    folder: Path
    """its folder"""
    reads: bool = True
    """whether what it holds is used; what is new is always kept"""


@dataclass(frozen=True)
class Store:
    """An open store."""

    folder: Path
    base: sqlite3.Connection

    def file(self, name: str) -> Path:
        """Where a file is."""
        return self.folder / "files" / name

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All changes inside, or none."""
        self.base.execute("BEGIN IMMEDIATE")
        try:
            yield self.base
        except BaseException:
            self.base.execute("ROLLBACK")
            raise
        self.base.execute("COMMIT")

    def link(self, path: Path, sha256: str | None = None) -> str:
        """Keep a finished file under its SHA-256 and suffix: a hard link, or on another disk a copy. Returns its name.

        A damaged file of that name is replaced.
        """
        name = f"{sha256 or sha256_file(path)}{path.suffix}"
        target = self.file(name)
        target.parent.mkdir(exist_ok=True)
        if target.exists():
            if target.samefile(path):
                return name
            if self.is_sound(name):  # of an earlier run: one of the two files is enough
                path, target = target, path
        temporary = target.with_name(f"{TEMPORARY}{os.getpid()}-{name}")
        try:
            temporary.unlink(missing_ok=True)
            os.link(path, temporary)
            os.replace(temporary, target)
            sync_folder(target.parent)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
                raise
            with path.open("rb") as source, writing(target) as copy:
                shutil.copyfileobj(source, copy)
        return name

    def number_of(self, name: str) -> int:
        """The number of a linked file; to be called inside a transaction."""
        self.base.execute("INSERT OR IGNORE INTO files (name) VALUES (?)", (name,))
        (number,) = self.base.execute("SELECT number FROM files WHERE name = ?", (name,)).fetchone()
        return int(number)

    def is_sound(self, name: str) -> bool:
        """Whether the bytes of a file are those that its name says."""
        path = self.file(name)
        return path.is_file() and sha256_file(path) == path.stem


@contextmanager
def open_store(folder: Path) -> Iterator[Store]:
    """Open a store, and create it if needed. Raises BadInput for a store of another version or a damaged index, Busy,
    and DriftlineError if the disk is full."""
    path = folder / "index.sqlite"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with closing(connect(path, timeout=PATIENCE, isolation_level=None)) as base:
            _prepare(base, path)
            yield Store(folder, base)
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0)
        if code & 0xFF in FULL:
            raise no_room(OSError(errno.ENOSPC, ""), path, 0) from None
        if code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise Busy(f"Another process writes to {path.absolute()} for more than {PATIENCE:.0f} s.") from None
        raise BadInput(
            f"{path.absolute()} cannot be used ({reason(error)}).",
            "Expected the index of a store.",
            f"Move {folder} away, or set store.use: false: stages and answers are kept, the rest is asked again.",
        ) from None


def _prepare(base: sqlite3.Connection, path: Path) -> None:
    (version,) = base.execute("PRAGMA user_version").fetchone()
    if version == 0:
        base.execute("PRAGMA journal_mode = WAL")
        base.execute("BEGIN IMMEDIATE")
        if base.execute("PRAGMA user_version").fetchone()[0] == 0:  # no other process was faster
            for statement in SCHEMA.split(";\n"):
                base.execute(statement)
            base.execute(f"PRAGMA user_version = {FORMAT}")
        base.execute("COMMIT")
    else:
        check_format(path.absolute(), version, FORMAT, "Set store.path to another folder.")
    base.execute("PRAGMA synchronous = NORMAL")
    base.execute("PRAGMA cache_size = -65536")


def register_run(store: Store, root: Path) -> None:
    """Record that a run uses the store, so that `gc` knows what is needed."""
    with store.transaction() as base:
        base.execute("INSERT OR REPLACE INTO runs VALUES (?, ?)", (str(root.absolute()), int(time.time())))


def digests_of_links(place: Place | None) -> dict[tuple[int, int], str]:
    """(device, inode) → SHA-256 of the files of a store, by their names, which `link` gave them."""
    digests: dict[tuple[int, int], str] = {}
    for path in [] if place is None else (place.folder / "files").glob("*"):
        if OURS.fullmatch(path.name) and not path.name.startswith(TEMPORARY):
            with suppress(OSError):  # another process may delete it
                facts = path.lstat()
                digests[facts.st_dev, facts.st_ino] = path.stem
    return digests


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
    query = """
    WITH kept AS (SELECT number, file FROM images WHERE lower(hex(sha)) IN (SELECT value FROM json_each(?)))
    SELECT name FROM files WHERE number NOT IN
        (SELECT file FROM kept UNION SELECT file FROM vectors WHERE image IN (SELECT number FROM kept))
    """
    unused = [name for (name,) in base.execute(query, (json.dumps(list(needed)),))]
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
