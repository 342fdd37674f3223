"""Filters: reasons to drop a row of the table before anything is downloaded.

A filter is a function table → mask of the rows that it drops. A row is dropped with the first reason that applies, in
the order of `filters()`; CLEAR's own come first [CLEAR, supplement 1; yfcc_download.py]. Filters that need the whole
table (an id that occurs twice, a user with many photos) are in `filtering.py`.
"""

import re
import time
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.curate.core.errors import BadConfig, reason
from driftline.curate.foreign.http import one_address
from driftline.curate.metadata.schema import TABLE, as_mask, whole
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
    import duckdb

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
