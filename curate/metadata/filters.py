"""Faults: named reasons to drop a row of the table before anything is fetched.

A fault is a function table → mask of the rows that have it. A row is charged to its first fault, in the order of
`faults()`. CLEAR's own rules come first [CLEAR, supplement 1; yfcc_download.py]. Faults that only the whole table
shows (an id that came before, a user who has many) are found in `sift.py`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.core.errors import BadConfig, BadInput
from curate.core.parsing import plus_decode
from curate.metadata.schema import TABLE, as_mask, whole

SENTINELS = (0, -1, 2**31 - 1)  # "no date" as various programs write it: 1970-01-01 and 2038-01-19
# http or https, a host without user or password, a port if any, and printable ASCII to the end
URL = r"^(?i:https?)://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(:0*[1-9][0-9]{0,4})?([/?#][!-~]*)?$"
Fault = Callable[[pa.Table], pa.Array]


@dataclass(frozen=True)
class FilterRules:
    """upload_after_capture: CLEAR's rule, upload strictly later than capture (photos without a capture date
    are dropped with it). date_tolerance: seconds by which capture may seem later (local clock against UTC;
    CLEAR: 0). earliest, latest: seconds, half-open span of upload times that are believed.
    licences: names or addresses that are allowed (prefix, any case). box: west, south, east, north in degrees; west >
    east crosses the date line. cameras: one of these must stand in the camera's name (any case). tags_any, tags_none:
    whole tags, decoded, any case. per_user: at most so many photos of one user, the first in metadata order.
    withdrawn: CSV file with a column `id`. where: one DuckDB expression over the table's columns; null drops."""

    upload_after_capture: bool = True
    date_tolerance: int = 0
    earliest: int | None = None
    latest: int | None = None
    licences: Sequence[str] = ()
    box: tuple[float, float, float, float] | None = None
    cameras: Sequence[str] = ()
    tags_any: Sequence[str] = ()
    tags_none: Sequence[str] = ()
    per_user: int | None = None
    withdrawn: Path | None = None
    where: str | None = None


def faults(rules: FilterRules) -> dict[str, Fault]:
    """Name → fault of a row by itself, in the order in which rows are charged."""
    named: dict[str, Fault] = {
        "video": lambda t: pc.equal(t["media"], "video"),
        "no_url": lambda t: pc.and_(pc.is_null(t["url"]), pc.is_null(t["path"])),
        "malformed_url": lambda t: pc.invert(pc.match_substring_regex(t["url"], URL)),
        "no_upload_date": lambda t: pc.is_null(t["uploaded"]),
        "impossible_upload_date": lambda t: impossible_date(t, rules),
    }
    if rules.upload_after_capture:
        named["no_capture_date"] = lambda t: pc.is_null(t["taken"])
        named["not_after_capture"] = lambda t: pc.less_equal(
            t["uploaded"], pc.subtract(t["taken"], rules.date_tolerance)
        )
    if rules.withdrawn is not None:
        gone = pa.array(withdrawn_ids(rules.withdrawn), pa.string())
        named["withdrawn"] = lambda t: pc.is_in(t["id"], gone)
    if rules.licences:
        named["licence_not_allowed"] = lambda t: _none_of(rules.licences, "^", t["licence"], t["licence_url"])
    if rules.box is not None:
        named["no_position"] = lambda t: pc.or_(pc.is_null(t["longitude"]), pc.is_null(t["latitude"]))
        named["outside_box"] = lambda t: outside_box(t, rules)
    if rules.cameras:
        named["camera_not_wanted"] = lambda t: _none_of(rules.cameras, "", t["camera"])
    if rules.tags_any:
        named["no_wanted_tag"] = lambda t: pc.invert(has_tag(t, rules.tags_any))
    if rules.tags_none:
        named["unwanted_tag"] = lambda t: has_tag(t, rules.tags_none)
    if rules.where is not None:
        named["own_filter"] = lambda t: fails(t, rules.where or "")
    return named


def check(rules: FilterRules) -> None:
    """Find what is wrong with the rules before any work. Raises BadConfig, BadInput."""
    if rules.box is not None:
        west, south, east, north = rules.box
        if not (-180 <= west <= 180 and -180 <= east <= 180 and -90 <= south < north <= 90):
            raise BadConfig(
                f"filter.box is {list(rules.box)}.", "Expected [west, south, east, north] in degrees, south < north."
            )
    if rules.withdrawn is not None:
        withdrawn_ids(rules.withdrawn)
    if rules.where is not None:
        fails(TABLE.empty_table(), rules.where)


def impossible_date(table: pa.Table, rules: FilterRules) -> pa.Array:
    """An upload time that stands for "unknown", or outside the believed span."""
    when = table["uploaded"]
    mask = pc.is_in(when, value_set=pa.array(SENTINELS, pa.int64()))
    if rules.earliest is not None:
        mask = pc.or_(mask, pc.less(when, rules.earliest))
    if rules.latest is not None:
        mask = pc.or_(mask, pc.greater_equal(when, rules.latest))
    return mask


def outside_box(table: pa.Table, rules: FilterRules) -> pa.Array:
    """A position outside west … east, south … north (borders belong to the box)."""
    assert rules.box is not None  # called where there is one
    west, south, east, north = rules.box
    x, y = table["longitude"], table["latitude"]
    low, high = pc.less(x, west), pc.greater(x, east)
    beside = pc.and_(low, high) if west > east else pc.or_(low, high)
    return pc.or_(beside, pc.or_(pc.less(y, south), pc.greater(y, north)))


def has_tag(table: pa.Table, tags: Sequence[str]) -> pa.Array:
    """One of `tags` is a tag of the photo; tags are split at commas before they are decoded."""
    lists = pc.split_pattern(pc.fill_null(whole(table["tags"]), ""), ",")
    wanted = pa.array([tag.casefold() for tag in tags], pa.string())
    hit = pc.is_in(pc.utf8_lower(plus_decode(lists.values)), wanted).to_numpy(zero_copy_only=False)
    counts = np.concatenate([[0], np.cumsum(hit)])
    offsets = lists.offsets.to_numpy()
    return pa.array(counts[offsets[1:]] > counts[offsets[:-1]])


def fails(table: pa.Table, where: str) -> pa.Array:
    """Rows for which the expression is false or null. Raises BadConfig where DuckDB cannot read it."""
    import duckdb

    base = duckdb.connect(config={"threads": "1"})
    try:
        base.register("photos", table)
        base.execute("SET enable_external_access = false")  # an expression may look at the table, at nothing else
        base.execute("SET lock_configuration = true")
        asked = f"SELECT ({where}) AS keep FROM photos"
        kinds = base.execute(f"SELECT typeof(keep) FROM (SELECT 1) LEFT JOIN ({asked}) ON false").fetchall()
        if kinds not in ([("BOOLEAN",)], [('"NULL"',)]):
            raise BadConfig(
                f"filter.where is {where!r}, of type {kinds[0][0] if kinds else 'nothing'}.", "Expected true or false."
            )
        found = base.sql(f"SELECT coalesce(keep, false) AS keep FROM ({asked})").to_arrow_table()
    except duckdb.Error as error:
        raise BadConfig(
            f"filter.where cannot be read: {str(error).strip().splitlines()[0]}",
            f"Expected one DuckDB expression over {', '.join(TABLE.names)}.",
            "Example: where: \"camera LIKE 'Canon%' AND latitude > 0\".",
        ) from None
    finally:
        base.close()
    if len(found) != len(table):
        raise BadConfig(f"filter.where is {where!r}.", "Expected an expression over one photo, not over all of them.")
    return pc.invert(whole(found["keep"]))


def withdrawn_ids(path: Path) -> list[str]:
    """Ids of the column `id` of a CSV file. Raises BadInput."""
    if not path.is_file():
        raise BadInput(f"filter.withdrawn names {path}, which is not there.", "Expected a CSV file with a column id.")
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        if "id" not in (reader.fieldnames or []):
            raise BadInput(f"{path} has no column 'id'.", f"Its header is {reader.fieldnames}.", "Name it id.")
        return [row["id"].strip() for row in reader if row["id"]]


def _none_of(words: Sequence[str], anchor: str, *columns: pa.ChunkedArray) -> pa.Array:
    pattern = "(?i)" + anchor + "(" + "|".join(re.escape(w) for w in words) + ")"
    found = [pc.fill_null(pc.match_substring_regex(column, pattern), False) for column in columns]
    some = found[0]
    for more in found[1:]:
        some = pc.or_(some, more)
    return pc.invert(some)


def reasons(table: pa.Table, rules: FilterRules) -> pa.Array:
    """The first fault of each row by itself (N,) string, null where there is none."""
    named = faults(rules)
    charged = np.zeros(len(table), np.int64)
    for number, fault in enumerate(named.values(), 1):
        charged[as_mask(fault(table)) & (charged == 0)] = number
    return pa.array([None, *named], pa.string()).take(pa.array(charged))
