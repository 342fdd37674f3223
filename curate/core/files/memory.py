"""What was read of files, kept by their stamps (`walk.Entry`): a file is read again if its stamp is another one."""

import hashlib
import sqlite3
import time
from collections.abc import Collection, Iterable
from contextlib import closing, suppress
from pathlib import Path

from driftline.curate.core.outside.databases import connect
from driftline.curate.core.outside.names import is_utf8

TABLE = "CREATE TABLE IF NOT EXISTS seen (kind TEXT, path TEXT, stamp TEXT, value TEXT, PRIMARY KEY (kind, path))"
UNSETTLED = 2.0  # seconds: a file that was changed so recently may change again without a new time
AT_ONCE = 500  # paths in a query


def joined(stamps: Collection[str], *parts: str) -> str:
    """One stamp of several files, and of texts: another one if any of them changes."""
    digest = hashlib.sha256(repr((list(stamps), parts)).encode("utf-8", "surrogatepass")).hexdigest()
    return f"{digest} {max((int(time) for stamp in stamps for time in stamp.split()[-2:]), default=0)} 0"


def recall(memory: Path | None, kind: str, stamps: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Path → what is kept of this kind, for those of the (path, stamp) whose stamp is still the same."""
    of = dict(stamps)
    paths, values = [path for path in of if is_utf8(path)], dict[str, str]()
    if memory is None or not paths:
        return {}
    with suppress(sqlite3.Error), closing(connect(memory, timeout=1)) as base:  # what it holds can be computed
        base.execute(TABLE)
        for start in range(0, len(paths), AT_ONCE):
            part = paths[start : start + AT_ONCE]
            query = f"SELECT path, stamp, value FROM seen WHERE kind = ? AND path IN ({', '.join('?' * len(part))})"
            rows = base.execute(query, (kind, *part))
            values |= {path: value for path, stamp, value in rows if of[path] == stamp}
    return values


def keep(memory: Path | None, kind: str, rows: Iterable[tuple[str, str, str]]) -> None:
    """Keep (path, stamp, value), but not of files that were changed just now, and nothing where the memory cannot be
    written."""
    settled = time.time_ns() - int(UNSETTLED * 1e9)
    old = [(kind, *row) for row in rows if max(map(int, row[1].split()[-2:])) < settled and is_utf8(row[0])]
    if memory is not None and old:
        with suppress(sqlite3.Error), closing(connect(memory, timeout=1)) as base:  # read only, or full
            base.execute(TABLE)
            base.executemany("INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?)", old)
            base.commit()
