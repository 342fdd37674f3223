"""SQLite files of a run and its store."""

import sqlite3
from pathlib import Path
from typing import Any

from driftline.curate.core.errors import Busy


def connect(path: Path, **options: Any) -> sqlite3.Connection:
    """Open a SQLite file, or make it. Functions in its schema do not run. options: of `sqlite3.connect`. Raises
    sqlite3.Error."""
    base = sqlite3.connect(path, **options)
    base.execute("PRAGMA trusted_schema = OFF")
    return base


def purge(base: sqlite3.Connection, path: Path) -> None:
    """Leave nothing of deleted rows: SQLite keeps them in free pages and in its log. Raises Busy, sqlite3.Error."""
    base.execute("VACUUM")
    if base.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
        raise Busy(f"Another process reads {path.absolute()}.", "", "Stop it, and run the same command again.")
