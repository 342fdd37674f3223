"""Filtering of a table in parts; memory does not grow with the table.

Each part gets marks: the reason for each row by itself. DuckDB finds, in all marks, the rows whose id or user occurs
too often, in metadata order; then each part is written. Finished parts are not done again.
"""

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import TEMPORARY, write_parquet
from driftline.curate.core.executor import Executor
from driftline.curate.core.run_log import RunLog
from driftline.curate.metadata.filters import check, reasons
from driftline.curate.metadata.schema import REJECTS, REPEATED, TABLE, whole
from driftline.curate.metadata.settings import FilterSettings

MARKS = pa.schema([("id", pa.string()), ("row", pa.int64()), ("user", pa.string()), ("reason", pa.string())])
LATE = pa.schema([("row", pa.int64()), ("reason", pa.string())])
TEXT = ("title", "description", "nickname", "page_url", "label", "caption")  # columns that only `where` reads
DUCKDB_MEMORY = "512MB"
LAST = 2**62  # above all row numbers


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
        for k, _ in executor.run_tasks(mark, [(parts[i], marks[i], settings) for i in todo], threads=True):
            tick(sizes[todo[k]])
        late = late_rows(marks, settings, out / f"{TEMPORARY}duckdb")
        counts: Counter[str] = Counter()
        tasks: list[Part] = []
        for part, path in zip(parts, marks, strict=True):
            rows = pq.read_table(path, columns=["row"])["row"].to_numpy()
            low, high = np.searchsorted(late["row"].to_numpy(), [rows.min(initial=LAST), rows.max(initial=-1) + 1])
            task = Part(part, path, late.slice(low, high - low), out / "table" / part.name, out / "rejects" / part.name)
            counts.update({e["values"] or "": e["counts"] for e in pc.value_counts(_reasons(task)).to_pylist()})
            tasks.append(task)
        todo = [i for i, task in enumerate(tasks) if not task.rejects.exists()]
        tick(sum(sizes) - sum(sizes[i] for i in todo))
        for k, _ in executor.run_tasks(finish, [tasks[i] for i in todo], threads=True):
            tick(sizes[todo[k]])
    shutil.rmtree(out / "marks", ignore_errors=True)  # the rejects hold all of it now
    return counts


def mark(task: tuple[Path, Path, FilterSettings]) -> None:
    """First pass, one part by itself: table part, file, settings → marks (id, row, user, reason), one for each row."""
    part, out, settings = task
    names = None if settings.where is not None else [name for name in TABLE.names if name not in TEXT]
    table = pq.read_table(part, columns=names, use_threads=False)
    marks = table.select(["id", "row", "user"]).append_column("reason", reasons(table, settings)).cast(MARKS)
    write_parquet(out, marks, ("user", "reason"))


def late_rows(marks: Sequence[Path], settings: FilterSettings, scratch: Path) -> pa.Table:
    """The rows whose reason needs the whole table: (row, reason), in metadata order.

    Of the good rows, the first of each id is kept, and of these the first `per_user` of each user. DuckDB limits the
    memory and spills to `scratch`.
    """
    import duckdb

    query = """
        WITH good AS (SELECT * FROM read_parquet($marks) WHERE reason IS NULL),
        ids AS (SELECT id FROM good GROUP BY id HAVING count(*) > 1),
        twice AS (
            SELECT row, row_number() OVER (PARTITION BY id ORDER BY row) AS nth
            FROM good SEMI JOIN ids USING (id)
        ),
        again AS (SELECT row FROM twice WHERE nth > 1),
        users AS (SELECT user FROM good GROUP BY user HAVING $limit IS NOT NULL AND count(*) > $limit),
        busy AS (
            SELECT row, row_number() OVER (PARTITION BY user ORDER BY row) AS nth
            FROM good SEMI JOIN users USING (user) ANTI JOIN again USING (row)
        )
        SELECT row, 'duplicate_id' AS reason FROM again
        UNION ALL SELECT row, 'too_many_of_user' FROM busy WHERE nth > $limit
        ORDER BY row
    """
    with duckdb.connect(config={"memory_limit": DUCKDB_MEMORY, "temp_directory": str(scratch)}) as base:
        parameters = {"marks": [str(path) for path in marks], "limit": settings.per_user}
        return base.sql(query, params=parameters).to_arrow_table().cast(LATE)


@dataclass(frozen=True)
class Part:
    """One part of the table in its last pass."""

    table: Path
    """the part"""
    marks: Path
    """its marks"""
    late: pa.Table
    """its rows of `late_rows`"""
    good: Path
    """file for the rows that are kept"""
    rejects: Path
    """file for the rows that are dropped, with their reasons"""


def finish(part: Part) -> None:
    """Last pass, one part: write its good rows, then the others with their reasons."""
    marks = pq.read_table(part.marks, use_threads=False)
    reason = _reasons(part)
    good = pc.is_null(reason)
    # one thread: parts run in parallel already, and Arrow's own threads double the CPU time for files of this size
    write_parquet(part.good, pq.read_table(part.table, use_threads=False).filter(good), REPEATED)
    rejects = pa.table([marks["id"], marks["row"], reason, pa.nulls(len(marks), pa.string())], schema=REJECTS)
    write_parquet(part.rejects, rejects.filter(pc.invert(good)))


def _reasons(part: Part) -> pa.Array:
    """The reason of each of its rows (N,) string, null for a row that is kept."""
    marks = pq.read_table(part.marks, columns=["row", "reason"], use_threads=False)
    mask = np.zeros(len(marks), bool)
    mask[np.searchsorted(marks["row"].to_numpy(), part.late["row"].to_numpy())] = True
    return pc.replace_with_mask(whole(marks["reason"]), pa.array(mask), whole(part.late["reason"]))
