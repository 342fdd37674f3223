"""Filtering of a table in parts; memory does not grow with the table.

Each part gets marks: the reason for each row by itself. DuckDB finds the ids and users that occur too often in all
marks; their rows get their reasons in metadata order; then each part is written. Finished parts are not done again.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.core.atomic_io import TEMPORARY, write_parquet
from curate.core.executor import Executor
from curate.core.run_log import RunLog
from curate.metadata.filters import check, reasons
from curate.metadata.schema import REJECTS, REPEATED, TABLE, as_mask, whole
from curate.metadata.settings import FilterSettings

MARKS = pa.schema([("id", pa.string()), ("row", pa.int64()), ("user", pa.string()), ("reason", pa.string())])
TEXT = ("title", "description", "nickname", "page_url", "label", "caption")  # columns that only `where` reads
DUCKDB_MEMORY = "512MB"


def filter_table(
    parts: Sequence[Path], out: Path, settings: FilterSettings, run_log: RunLog, executor: Executor | None = None
) -> Counter[str]:
    """Parts of the table → `out`/table and `out`/rejects, one file a part; returns counts by reason ("": kept)."""
    check(settings)
    executor = executor or Executor()
    sizes = [pq.read_metadata(part).num_rows for part in parts]
    marks = [out / "marks" / part.name for part in parts]
    with run_log.progress("filter", 2 * sum(sizes), "rows") as tick:
        todo = [i for i, path in enumerate(marks) if not path.exists()]
        tick(sum(sizes) - sum(sizes[i] for i in todo))
        for k, _ in executor.run_tasks(_mark, [(parts[i], marks[i], settings) for i in todo], threads=True):
            tick(sizes[todo[k]])
        settler = Settler(settings, *too_frequent(marks, settings, out / f"{TEMPORARY}duckdb"))
        counts: Counter[str] = Counter()
        tasks: list[Part] = []
        for part, path in zip(parts, marks, strict=True):
            table = pq.read_table(path)
            late = settler.settle(table)
            counts.update(counted(table, late))
            tasks.append(Part(part, path, late, out / "table" / part.name, out / "rejects" / part.name))
        todo = [i for i, task in enumerate(tasks) if not task.rejects.exists()]
        tick(sum(sizes) - sum(sizes[i] for i in todo))
        for k, _ in executor.run_tasks(finish, [tasks[i] for i in todo], threads=True):
            tick(sizes[todo[k]])
    shutil.rmtree(out / "marks", ignore_errors=True)  # the rejects hold all of it now
    return counts


def _mark(task: tuple[Path, Path, FilterSettings]) -> None:
    mark(*task)


def mark(part: Path, out: Path, settings: FilterSettings) -> None:
    """First pass, one part by itself: table part → marks (id, row, user, reason), one for each row."""
    names = None if settings.where is not None else [name for name in TABLE.names if name not in TEXT]
    table = pq.read_table(part, columns=names, use_threads=False)
    marks = table.select(["id", "row", "user"]).append_column("reason", reasons(table, settings)).cast(MARKS)
    write_parquet(out, marks)


def too_frequent(marks: Sequence[Path], settings: FilterSettings, scratch: Path) -> tuple[set[str], set[str]]:
    """Ids of more than one good row, and users of more than `per_user`; DuckDB limits the memory."""
    import duckdb

    def above(column: str, limit: int) -> set[str]:
        rows = base.execute(
            f"SELECT {column} FROM read_parquet(?) WHERE reason IS NULL AND {column} IS NOT NULL "
            f"GROUP BY {column} HAVING count(*) > ?",
            [[str(path) for path in marks], limit],
        ).fetchall()
        return {value for (value,) in rows}

    with duckdb.connect(config={"memory_limit": DUCKDB_MEMORY, "temp_directory": str(scratch)}) as base:
        return above("id", 1), above("user", settings.per_user) if settings.per_user is not None else set()


@dataclass
class Settler:
    """Keeps, in metadata order, the first row of each id and the first `per_user` rows of each user."""

    settings: FilterSettings
    ids: set[str]
    """ids of several rows"""
    users: set[str]
    """users of more than `per_user` rows"""
    seen: set[str] = field(default_factory=set)
    """those of `ids` that have their row"""
    kept: Counter[str] = field(default_factory=Counter)
    """rows of each of `users`"""

    def settle(self, marks: pa.Table) -> dict[int, str]:
        """Position in the next part → a reason that needs the whole table."""
        frequent = pc.or_(
            pc.is_in(marks["id"], pa.array(sorted(self.ids), pa.string())),
            pc.is_in(marks["user"], pa.array(sorted(self.users), pa.string())),
        )
        positions = np.flatnonzero(as_mask(pc.and_(pc.is_null(marks["reason"]), frequent)))
        few = marks.take(pa.array(positions))
        late: dict[int, str] = {}
        for i, id_, user in zip(positions.tolist(), few["id"].to_pylist(), few["user"].to_pylist(), strict=True):
            if id_ in self.seen:
                late[i] = "duplicate_id"
                continue
            if id_ in self.ids:
                self.seen.add(id_)
            if user in self.users:
                self.kept[user] += 1
                if self.settings.per_user is not None and self.kept[user] > self.settings.per_user:
                    late[i] = "too_many_of_user"
        return late


@dataclass(frozen=True)
class Part:
    """One part of the table in its last pass."""

    table: Path
    """the part"""
    marks: Path
    """its marks"""
    late: dict[int, str]
    """position → reason, from the `Settler`"""
    kept: Path
    """file for the rows that are kept"""
    rejects: Path
    """file for the rows that are dropped, with their reasons"""


def finish(part: Part) -> None:
    """Last pass, one part: write its good rows, then the others with their reasons."""
    marks = pq.read_table(part.marks, use_threads=False)
    reason = whole(marks["reason"])
    if part.late:
        mask = np.zeros(len(marks), bool)
        mask[list(part.late)] = True
        reason = pc.replace_with_mask(reason, pa.array(mask), pa.array(list(part.late.values()), pa.string()))
    good = pc.is_null(reason)
    # one thread: parts run in parallel already, and Arrow's own threads double the CPU time for files of this size
    write_parquet(part.kept, pq.read_table(part.table, use_threads=False).filter(good), REPEATED)
    rejects = pa.table([marks["id"], marks["row"], reason, pa.nulls(len(marks), pa.string())], schema=REJECTS)
    write_parquet(part.rejects, rejects.filter(pc.invert(good)))


def counted(marks: pa.Table, late: dict[int, str]) -> Counter[str]:
    """Rows of a part by reason ("": kept)."""
    counts = Counter({e["values"] or "": e["counts"] for e in pc.value_counts(whole(marks["reason"])).to_pylist()})
    counts.update(late.values())
    counts[""] -= len(late)
    return counts
