"""The table without its faulty rows, in memory that does not grow with it.

Each part is judged by itself into marks; DuckDB finds among all marks the ids and users that are met too often; those
are settled in metadata order; then each part is written. Finished parts are not judged or written again.
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
from curate.metadata.filters import FilterRules, check, reasons
from curate.metadata.schema import REJECTS, REPEATED, TABLE, as_mask, whole

MARKS = pa.schema([("id", pa.string()), ("row", pa.int64()), ("user", pa.string()), ("reason", pa.string())])
TEXT = ("title", "description", "nickname", "page_url", "label", "caption")  # columns that only `where` looks at
DUCKDB_MEMORY = "512MB"


def sift(
    parts: Sequence[Path], out: Path, rules: FilterRules, run_log: RunLog, executor: Executor | None = None
) -> Counter[str]:
    """Parts of the table → `out`/table, `out`/rejects, a file each per part; returns counts by reason ("" = kept)."""
    check(rules)
    executor = executor or Executor()
    sizes = [pq.read_metadata(part).num_rows for part in parts]
    marks = [out / "marks" / part.name for part in parts]
    with run_log.progress("filter", 2 * sum(sizes), "rows") as tick:
        todo = [i for i, path in enumerate(marks) if not path.exists()]
        tick(sum(sizes) - sum(sizes[i] for i in todo))
        for k, _ in executor.run_tasks(_mark, [(parts[i], marks[i], rules) for i in todo], threads=True):
            tick(sizes[todo[k]])
        settler = Settler(rules, *met_too_often(marks, rules, out / f"{TEMPORARY}duckdb"))
        counts: Counter[str] = Counter()
        tasks: list[Part] = []
        for part, path in zip(parts, marks, strict=True):
            found = pq.read_table(path)
            late = settler.settle(found)
            counts.update(counted(found, late))
            tasks.append(Part(part, path, late, out / "table" / part.name, out / "rejects" / part.name))
        todo = [i for i, task in enumerate(tasks) if not task.rejects.exists()]
        tick(sum(sizes) - sum(sizes[i] for i in todo))
        for k, _ in executor.run_tasks(finish, [tasks[i] for i in todo], threads=True):
            tick(sizes[todo[k]])
    shutil.rmtree(out / "marks", ignore_errors=True)  # all they say is in the rejects now
    return counts


def _mark(task: tuple[Path, Path, FilterRules]) -> None:
    mark(*task)


def mark(part: Path, out: Path, rules: FilterRules) -> None:
    """First pass, one part by itself: table part → marks (id, row, user, reason), one row each."""
    names = None if rules.where is not None else [name for name in TABLE.names if name not in TEXT]
    table = pq.read_table(part, columns=names, use_threads=False)
    marks = table.select(["id", "row", "user"]).append_column("reason", reasons(table, rules)).cast(MARKS)
    write_parquet(out, marks)


def met_too_often(marks: Sequence[Path], rules: FilterRules, scratch: Path) -> tuple[set[str], set[str]]:
    """Ids that more than one good row has, and users that more than `per_user` have; memory is bounded by DuckDB."""
    import duckdb

    def often(column: str, limit: int) -> set[str]:
        found = base.execute(
            f"SELECT {column} FROM read_parquet(?) WHERE reason IS NULL AND {column} IS NOT NULL "
            f"GROUP BY {column} HAVING count(*) > ?",
            [[str(path) for path in marks], limit],
        ).fetchall()
        return {value for (value,) in found}

    with duckdb.connect(config={"memory_limit": DUCKDB_MEMORY, "temp_directory": str(scratch)}) as base:
        return often("id", 1), often("user", rules.per_user) if rules.per_user is not None else set()


@dataclass
class Settler:
    """In metadata order: the first row of an id stays, the first `per_user` rows of a user stay."""

    rules: FilterRules
    ids: set[str]
    users: set[str]
    seen: set[str] = field(default_factory=set)
    had: Counter[str] = field(default_factory=Counter)

    def settle(self, marks: pa.Table) -> dict[int, str]:
        """Position in the next part → the reason that only the whole table gives."""
        often = pc.or_(
            pc.is_in(marks["id"], pa.array(sorted(self.ids), pa.string())),
            pc.is_in(marks["user"], pa.array(sorted(self.users), pa.string())),
        )
        where = np.flatnonzero(as_mask(pc.and_(pc.is_null(marks["reason"]), often)))
        few = marks.take(pa.array(where))
        late: dict[int, str] = {}
        for i, id_, user in zip(where.tolist(), few["id"].to_pylist(), few["user"].to_pylist(), strict=True):
            if id_ in self.seen:
                late[i] = "duplicate_id"
                continue
            if id_ in self.ids:
                self.seen.add(id_)
            if user in self.users:
                self.had[user] += 1
                if self.rules.per_user is not None and self.had[user] > self.rules.per_user:
                    late[i] = "too_many_of_user"
        return late


@dataclass(frozen=True)
class Part:
    """One part of the table in its last pass. late: position → reason, from the `Settler`."""

    table: Path
    marks: Path
    late: dict[int, str]
    kept: Path
    rejects: Path


def finish(part: Part) -> None:
    """Last pass, one part: its good rows to `kept`, then the others with their reasons to `rejects`."""
    marks = pq.read_table(part.marks, use_threads=False)
    charged = whole(marks["reason"])
    if part.late:
        mask = np.zeros(len(marks), bool)
        mask[list(part.late)] = True
        charged = pc.replace_with_mask(charged, pa.array(mask), pa.array(list(part.late.values()), pa.string()))
    good = pc.is_null(charged)
    # one thread: parts are spread already, and Arrow's own threads cost twice the CPU time on so small a file
    write_parquet(part.kept, pq.read_table(part.table, use_threads=False).filter(good), REPEATED)
    rejects = pa.table([marks["id"], marks["row"], charged, pa.nulls(len(marks), pa.string())], schema=REJECTS)
    write_parquet(part.rejects, rejects.filter(pc.invert(good)))


def counted(marks: pa.Table, late: dict[int, str]) -> Counter[str]:
    """Rows of a part by reason ("" = kept)."""
    found = Counter({e["values"] or "": e["counts"] for e in pc.value_counts(whole(marks["reason"])).to_pylist()})
    found.update(late.values())
    found[""] -= len(late)
    return found
