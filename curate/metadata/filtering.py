"""Filters: reasons to drop a row of the table before anything is downloaded.

A filter is a function table → mask of the rows that it drops. A row is dropped with the first reason that applies, in
the order of `filters()`; CLEAR's own come first [CLEAR, supplement 1; yfcc_download.py].

A table is filtered in parts; memory does not grow with it. Each part gets marks: the reason for each row by itself.
DuckDB finds, in all marks, the rows whose id or user occurs too often, in metadata order; then each part is written.
Finished parts are not done again.
"""

import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import TEMPORARY, write_parquet
from driftline.curate.core.errors import BadConfig, reason
from driftline.curate.core.executor import Executor
from driftline.curate.core.late import duckdb
from driftline.curate.core.run_log import RunLog
from driftline.curate.foreign.http import one_address
from driftline.curate.metadata.schema import REJECTS, REPEATED, TABLE, as_mask, whole
from driftline.curate.metadata.settings import FilterSettings
from driftline.curate.metadata.withdrawals import Withdrawal, address_digest, withdrawals, withdrawn_ids

SENTINELS = (0, -1, 2**31 - 1)  # "no date" as various programs write it: 1970-01-01 and 2038-01-19
ZONES = 14 * 3600  # seconds: a clock without offset counts as UTC, and may be this much later
PLAIN = r"^https?://[A-Za-z0-9_.-]+([/?#][!-~]*)?$"  # most addresses: `one_address` need not see them
Filter = Callable[[pa.Table], pa.Array]


def filters(settings: FilterSettings) -> dict[str, Filter]:
    """Reason → filter, in the order in which they are applied."""
    named: dict[str, Filter] = {
        "video": lambda t: pc.equal(t["media"], "video"),
        "no_url": lambda t: pc.and_(pc.is_null(t["url"]), pc.is_null(t["path"])),
        "malformed_url": lambda t: no_address(t["url"]),
        "no_upload_date": lambda t: pc.is_null(t["uploaded"]),
        "impossible_upload_date": lambda t: impossible_date(t, settings),
    }
    if settings.upload_after_capture:
        named["no_capture_date"] = lambda t: pc.is_null(t["taken"])
        named["not_after_capture"] = lambda t: pc.less_equal(
            latest_of(t), pc.subtract(t["taken"], settings.date_tolerance)
        )
    if settings.withdrawn is not None:
        named["withdrawn"] = was_withdrawn(withdrawals(Path(settings.withdrawn)))
    if settings.licences:
        named["licence_not_allowed"] = lambda t: _none_of(settings.licences, t["licence"], t["licence_url"])
    if settings.where is not None:
        named["own_filter"] = lambda t: fails(t, settings.where or "")
    return named


def check(settings: FilterSettings) -> None:
    """Check the file and the expression before any work. Raises BadConfig, BadInput."""
    if settings.withdrawn is not None:
        withdrawn_ids(Path(settings.withdrawn))
    if settings.where is not None:
        fails(TABLE.empty_table(), settings.where)


def impossible_date(table: pa.Table, settings: FilterSettings) -> pa.Array:
    """Upload times that stand for "unknown", or outside [earliest, latest), which ends with the run by default; of a
    year or day that is partly inside, the photo may be good."""
    times = table["uploaded"]
    mask = pc.and_(pc.is_in(times, value_set=pa.array(SENTINELS, pa.int64())), pc.is_null(table["until"]))
    if settings.earliest is not None:
        mask = pc.or_(mask, pc.less(latest_of(table), settings.earliest))
    latest = time.time() + ZONES if settings.latest is None else settings.latest
    return pc.or_(mask, pc.greater_equal(times, int(latest)))


def no_address(urls: pa.ChunkedArray) -> pa.Array:
    """Texts that are no web address, or name a user."""
    odd = as_mask(pc.invert(pc.match_substring_regex(urls, PLAIN)))
    odd[odd] = [one_address(url) is None for url in urls.filter(pa.array(odd)).to_pylist()]
    return pa.array(odd)


def latest_of(table: pa.Table) -> pa.Array:
    """The last time that each upload may have been."""
    return pc.coalesce(table["until"], table["uploaded"])


def fails(table: pa.Table, where: str) -> pa.Array:
    """Rows for which the expression is false or null. Raises BadConfig if DuckDB cannot read it."""
    base = duckdb.connect(config={"threads": "1"})
    try:
        base.register("photos", table)
        base.execute("SET enable_external_access = false")  # an expression may read the table, nothing else
        base.execute("SET lock_configuration = true")
        query = f"SELECT ({where}) AS keep FROM photos"
        kinds = base.execute(f"SELECT typeof(keep) FROM (SELECT 1) LEFT JOIN ({query}) ON false").fetchall()
        if kinds not in ([("BOOLEAN",)], [('"NULL"',)]):
            raise BadConfig(
                f"filter.where is {where!r}, of type {kinds[0][0] if kinds else 'nothing'}.", "Expected true or false."
            )
        answers = base.sql(f"SELECT coalesce(keep, false) AS keep FROM ({query})").to_arrow_table()
    except duckdb.Error as error:
        raise BadConfig(
            f"filter.where cannot be read: {reason(error)}",
            f"Expected one DuckDB expression over {', '.join(TABLE.names)}.",
            "Example: where: \"camera LIKE 'Canon%' AND latitude > 0\".",
        ) from None
    finally:
        base.close()
    if len(answers) != len(table):
        raise BadConfig(f"filter.where is {where!r}.", "Expected an expression over one photo, not over all of them.")
    return pc.invert(whole(answers["keep"]))


def was_withdrawn(photos: Sequence[Withdrawal]) -> Filter:
    """Photos with the id or the URL of one of these."""
    ids = pa.array([one.id for one in photos if one.id], pa.string())
    addresses = {one.address for one in photos if one.address}

    def of(table: pa.Table) -> pa.Array:
        by_id = pc.is_in(table["id"], ids)
        if not addresses:
            return by_id
        urls = table["url"].to_pylist()
        by_url = [url is not None and address_digest(url) in addresses for url in urls]
        return pc.or_(by_id, pa.array(by_url, pa.bool_()))

    return of


def _none_of(words: Sequence[str], *columns: pa.ChunkedArray) -> pa.Array:
    pattern = "(?i)^(" + "|".join(re.escape(w) for w in words) + ")"
    matches = [pc.fill_null(pc.match_substring_regex(column, pattern), False) for column in columns]
    return pc.invert(reduce(pc.or_, matches))


def reasons(table: pa.Table, settings: FilterSettings) -> pa.Array:
    """The first reason to drop each row (N,) string, null for a row that is kept."""
    named = filters(settings)
    first = np.zeros(len(table), np.int64)
    for number, drops in enumerate(named.values(), 1):
        first[as_mask(drops(table)) & (first == 0)] = number
    return pa.array([None, *named], pa.string()).take(pa.array(first))


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
    with run_log.progress("filter", 2 * sum(sizes), "rows, each twice") as tick:
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
