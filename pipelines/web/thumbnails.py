"""Small pictures, made when they are first looked at and kept in a cache folder, or in memory if none is writable."""

import io
import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from driftline.curate.core.atomic_io import fingerprint
from driftline.curate.core.errors import BadInput
from driftline.curate.foreign.images import as_rgb, open_image

THUMBNAIL = 192  # pixels of the longer edge
LARGE = 1280  # of the picture of one photo
MOST_PIXELS = 200_000_000  # of an image that is decoded
MOST_BYTES = 512 << 20  # of a file of thumbnails; older ones are forgotten first
MEMORY = ":memory:"
SIZE = """SELECT (page_count - freelist_count) * page_size FROM pragma_page_count(), pragma_freelist_count(),
pragma_page_size()"""
OLDEST = "DELETE FROM thumbnails WHERE rowid IN (SELECT rowid FROM thumbnails ORDER BY rowid LIMIT 10000)"


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
    """Thumbnails by key, in a SQLite file, or in memory where no file can be used."""

    def __init__(self, folder: Path | None) -> None:
        """folder: from `cache_folder`."""
        self._lock = Lock()
        try:
            self._database = _open(MEMORY if folder is None else str(folder / "thumbnails.sqlite"))
        except sqlite3.Error:
            self._database = _open(MEMORY)

    def get(self, key: str, load: Callable[[], bytes]) -> bytes:
        """The thumbnail of `key`, a JPEG; `load` gives the image if it must be made. Raises BadInput for no image."""
        with self._lock:
            rows: Sequence[tuple[bytes]] = self._asked("SELECT picture FROM thumbnails WHERE key = ?", key)
        if rows:
            return rows[0][0]
        thumbnail = small(load(), THUMBNAIL)
        with self._lock:
            self._asked("INSERT OR REPLACE INTO thumbnails VALUES (?, ?)", key, thumbnail)
            ((size,),) = self._asked(SIZE) or [(0,)]
            if size > MOST_BYTES:
                self._asked(OLDEST)
        return thumbnail

    def _asked(self, query: str, *values: Any) -> list[Any]:
        try:
            return self._database.execute(query, values).fetchall()
        except sqlite3.Error:  # a full disk, or a file that is damaged
            self._database = _open(MEMORY)
            return []


def _open(path: str) -> sqlite3.Connection:
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
