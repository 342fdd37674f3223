"""SQLite files that may be somebody else's: refused unless they hold exactly our tables, with values as declared."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from driftline.curate.core.atomic_io import check_plain
from driftline.curate.core.errors import BadInput, Busy

SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")  # end of a journal that names another file; SQLite may delete that
KINDS: Mapping[str, type] = {"INTEGER": int, "TEXT": str, "BLOB": bytes}
LATEST = 253_402_300_799  # the last second of the year 9999
Range = tuple[int, int]
Row = tuple[Any, ...]


def connect(path: Path, **options: Any) -> sqlite3.Connection:
    """Open a SQLite file that this process may write, or make it. Functions in its schema do not run.

    options: of `sqlite3.connect`. Raises BadInput for what is no file, and for a journal that names another file;
    sqlite3.Error.
    """
    for suffix in ("", "-journal", "-wal", "-shm"):
        check_plain(path.with_name(path.name + suffix))
    journal = path.with_name(f"{path.name}-journal")
    if journal.exists():
        with journal.open("rb") as file:
            file.seek(max(0, journal.stat().st_size - len(SUPER_JOURNAL)))
            if file.read() == SUPER_JOURNAL:
                raise _foreign(path, f"{journal.name} names another file")
    base = sqlite3.connect(path, **options)
    base.execute("PRAGMA trusted_schema = OFF")
    base.execute("PRAGMA cell_size_check = ON")
    return base


def check_schema(base: sqlite3.Connection, schema: str, path: Path) -> None:
    """Raise BadInput if a file has other tables, indexes, views or triggers than `schema` makes."""
    ours, theirs = _objects(schema), set(base.execute(OBJECTS))
    if odd := sorted(ours ^ theirs, key=str):
        kind, name, *_ = odd[0]
        raise _foreign(path, f"the {kind} {str(name)[:80]!r} is {'missing or ' * (odd[0] in ours)}not as we make it")


def typed(schema: str, ranges: Mapping[str, Range], path: Path) -> Callable[[sqlite3.Cursor, Row], Row]:
    """A row factory: a value of a column of `schema` is of its type and NULL only where it may be, or BadInput. Columns
    are known by name; an outer join calls one `name?`, where NULL means that there is no such row.

    ranges: of integers, and of the lengths of blobs; of other integers 0 … 2⁵³.
    """
    columns = _columns(schema)

    def checked(cursor: sqlite3.Cursor, row: Row) -> Row:
        for (column, *_), value in zip(cursor.description, row, strict=True):
            name = column.removesuffix("?")
            if name not in columns:
                continue
            kind, may_be_null = columns[name]
            if value is None:
                fits = may_be_null or name != column
            elif kind is str:
                fits = type(value) is str and "\0" not in value
            else:
                low, high = ranges.get(name, (0, 1 << 53))
                size: int = value if isinstance(value, int) else len(value) if isinstance(value, bytes) else -1
                fits = type(value) is kind and low <= size <= high
            if not fits:
                raise _foreign(path, f"a value of {name} is {str(value)[:80]!r}")
        return row

    return checked


def check_values(base: sqlite3.Connection, schema: str, path: Path) -> None:
    """As `typed`, of all values of a small file at once."""
    for table in _tables(schema):
        wrong = " OR ".join(
            f"typeof({name}) <> '{kind.lower()}'" + ("" if needed or key else f" AND {name} IS NOT NULL")
            for _, name, kind, needed, _, key in base.execute(f"PRAGMA table_info({table})")
        )
        if (row := base.execute(f"SELECT * FROM {table} WHERE {wrong} LIMIT 1").fetchone()) is not None:
            raise _foreign(path, f"the row {str(row)[:80]} of {table} is not of its types")


def purge(base: sqlite3.Connection, path: Path) -> None:
    """Leave nothing of deleted rows: SQLite keeps them in free pages and in its log. Raises Busy, sqlite3.Error."""
    base.execute("VACUUM")
    if base.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
        raise Busy(f"Another process reads {path.absolute()}.", "", "Stop it, and run the same command again.")


OBJECTS = "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_stat%' ESCAPE '\\'"


@cache
def _objects(schema: str) -> frozenset[Row]:
    base = sqlite3.connect(":memory:")
    base.executescript(schema)
    return frozenset(base.execute(OBJECTS))


def _tables(schema: str) -> list[str]:
    return [name for kind, name, *_ in _objects(schema) if kind == "table" and not name.startswith("sqlite_")]


@cache
def _columns(schema: str) -> Mapping[str, tuple[type, bool]]:
    """Column → its type, and whether it may be NULL; columns of one name in several tables are of one type."""
    base = sqlite3.connect(":memory:")
    base.executescript(schema)
    return {
        name: (KINDS[kind], not needed and not key)
        for table in _tables(schema)
        for _, name, kind, needed, _, key in base.execute(f"PRAGMA table_info({table})")
    }


def _foreign(path: Path, why: str) -> BadInput:
    return BadInput(
        f"{path.absolute()}: {why}.",
        "Expected a file as driftline writes it.",
        "Use it only if you trust its origin; without it, what it keeps is asked or computed again.",
    )
