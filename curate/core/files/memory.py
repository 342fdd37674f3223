"""What was read of files, kept by their stamps (`walk.Entry`): a file is read again if its stamp is another one."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from driftline.curate.core.outside.databases import connect
from driftline.curate.core.outside.names import is_utf8

SCHEMA = {"digests": "digest", "heads": "head", "records": "record"}
"""table → its column beside path and stamp"""
TABLES = "".join(
    f"CREATE TABLE {table} (path TEXT PRIMARY KEY, stamp TEXT, {value} TEXT);" for table, value in SCHEMA.items()
)
UNSETTLED = 2.0  # seconds: a file that was changed so recently may change again without a new time
AT_ONCE = 500  # paths in a query


def joined(stamps: Collection[str], *parts: str) -> str:
    """One stamp of several files, and of texts: another one if any of them changes."""
    digest = hashlib.sha256(repr((list(stamps), parts)).encode("utf-8", "surrogatepass")).hexdigest()
    return f"{digest} {max((int(time) for stamp in stamps for time in stamp.split()[-2:]), default=0)} 0"


def recall(memory: Path | None, table: str, stamps: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Path → what is kept in a table of SCHEMA, for those of the (path, stamp) whose stamp is still the same."""
    of = dict(stamps)
    paths, values = [path for path in of if is_utf8(path)], dict[str, str]()
    with _opened(memory) as base, suppress(sqlite3.Error):  # a damaged page
        for start in range(0, len(paths), AT_ONCE):
            if base is None:
                break
            part = paths[start : start + AT_ONCE]
            query = f"SELECT path, stamp, {SCHEMA[table]} FROM {table} WHERE path IN ({', '.join('?' * len(part))})"
            values |= {path: value for path, stamp, value in base.execute(query, part) if of[path] == stamp}
    return values


def keep(memory: Path | None, table: str, rows: Iterable[tuple[str, str, str]]) -> None:
    """Keep (path, stamp, value), but not of files that were changed just now, and nothing where the memory cannot be
    written."""
    settled = time.time_ns() - int(UNSETTLED * 1e9)
    old = [row for row in rows if max(map(int, row[1].split()[-2:])) < settled and is_utf8(row[0])]
    if old:
        with _opened(memory) as base, suppress(sqlite3.Error):  # read only, or full
            if base is not None:
                base.executemany(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?)", old)


@contextmanager
def _opened(path: Path | None) -> Iterator[sqlite3.Connection | None]:
    """The tables, committed at the end; None if they cannot be opened or created."""
    if path is None:
        yield None
        return
    try:
        base = connect(path, timeout=1)
        base.executescript(TABLES.replace("TABLE", "TABLE IF NOT EXISTS"))
    except sqlite3.Error:  # a read-only folder, or a damaged file: what it holds can be computed
        yield None
        return
    with closing(base):
        try:
            yield base
        finally:
            with suppress(sqlite3.Error):  # a full disk: these files are read again
                base.commit()
