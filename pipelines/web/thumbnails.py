"""Small pictures, made when they are first looked at and kept in a cache folder, or in memory if none is writable."""

from __future__ import annotations

import io
import os
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock

from driftline.curate.core.atomic_io import fingerprint
from driftline.curate.core.errors import BadInput
from driftline.curate.core.outside.images import as_rgb, open_image

THUMBNAIL = 192  # pixels of the longer edge
LARGE = 1280  # of the picture of one photo
MOST_PIXELS = 200_000_000  # of an image that is decoded
MOST_BYTES = 512 << 20  # of a file of thumbnails; older ones are forgotten first
IN_MEMORY = 4096  # thumbnails


def cache_folder(name: str, inputs: Iterable[Path]) -> Path | None:
    """A folder for what is derived from these files; None if it cannot be made. Other content of the files, by their
    sizes and times, has another folder.

    It is in `$XDG_CACHE_HOME` (default `~/.cache`), never in the input, which may be read-only.
    """
    marks = [name]
    for path in inputs:
        with suppress(OSError):
            facts = path.stat()
            marks.append(f"{path.resolve()} {facts.st_size} {facts.st_mtime_ns}")
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = base / "driftline" / fingerprint(marks)[:16]
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return None
    return folder if os.access(folder, os.W_OK) else None


class Thumbnails:
    """Thumbnails by key: the last ones in memory, all in a SQLite file."""

    def __init__(self, folder: Path | None) -> None:
        """folder: from `cache_folder`; a cache that cannot be used is left out."""
        self._lock = Lock()
        self._memory: OrderedDict[str, bytes] = OrderedDict()
        self._database: sqlite3.Connection | None = None
        if folder is not None:
            try:
                self._database = _open(folder / "thumbnails.sqlite")
            except sqlite3.Error:
                self._database = None

    def get(self, key: str, load: Callable[[], bytes]) -> bytes:
        """The thumbnail of `key`, a JPEG; `load` gives the image if it must be made. Raises BadInput for no image."""
        with self._lock:
            stored = self._memory.get(key) or self._stored(key)
        if stored is None:
            stored = small(load(), THUMBNAIL)
            with self._lock:
                self._store(key, stored)
        with self._lock:
            self._memory[key] = stored
            self._memory.move_to_end(key)
            while len(self._memory) > IN_MEMORY:
                self._memory.popitem(last=False)
        return stored

    def _stored(self, key: str) -> bytes | None:
        rows: Sequence[tuple[bytes]] = []
        if self._database is not None:
            try:
                rows = self._database.execute("SELECT picture FROM thumbnails WHERE key = ?", (key,)).fetchall()
            except sqlite3.Error:
                self._database = None
        return rows[0][0] if rows else None

    def _store(self, key: str, picture: bytes) -> None:
        if self._database is None:
            return
        try:
            self._database.execute("INSERT OR REPLACE INTO thumbnails VALUES (?, ?)", (key, picture))
            (pages,) = self._database.execute("PRAGMA page_count").fetchone()
            (page,) = self._database.execute("PRAGMA page_size").fetchone()
            (free,) = self._database.execute("PRAGMA freelist_count").fetchone()
            if (pages - free) * page > MOST_BYTES:
                self._database.execute(
                    "DELETE FROM thumbnails WHERE rowid IN (SELECT rowid FROM thumbnails ORDER BY rowid LIMIT 10000)"
                )
        except sqlite3.Error:  # a full disk, or a file that is damaged
            self._database = None


def _open(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=1.0)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=OFF")  # what is lost is made again
    database.execute("CREATE TABLE IF NOT EXISTS thumbnails (key TEXT PRIMARY KEY, picture BLOB NOT NULL)")
    return database


def small(data: bytes, edge: int) -> bytes:
    """A JPEG of at most `edge` pixels a side, upright. Raises BadInput for what cannot be decoded."""
    with open_image(data, "An image") as image:
        if image.width * image.height > MOST_PIXELS:
            raise BadInput(f"An image has {image.width} × {image.height} pixels.", f"At most {MOST_PIXELS:,}.")
        image.draft("RGB", (edge, edge))
        picture = as_rgb(image)
        picture.thumbnail((edge, edge))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=82)
    return buffer.getvalue()
