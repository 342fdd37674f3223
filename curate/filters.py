"""Faults: named reasons to drop a row of the table before anything is fetched.

A fault is a function table → mask of the rows that have it. A row is charged to its first fault, in the order
of `faults()`. CLEAR's own rules come first [CLEAR, supplement 1; yfcc_download.py].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SENTINELS = (0, -1, 2**31 - 1)  # "no date" as various programs write it: 1970-01-01 and 2038-01-19
Fault = Callable[[pa.Table], pa.Array]


@dataclass(frozen=True)
class FilterRules:
    """upload_after_capture: CLEAR's rule, upload strictly later than capture (photos without a capture date
    are dropped with it). date_tolerance: seconds by which capture may seem later (local clock against UTC;
    CLEAR: 0). earliest, latest: seconds, half-open span of upload times that are believed."""

    upload_after_capture: bool = True
    date_tolerance: int = 0
    earliest: int | None = None
    latest: int | None = None


def faults(rules: FilterRules) -> dict[str, Fault]:
    """Name → fault, in the order in which rows are charged."""
    named: dict[str, Fault] = {
        "video": lambda t: pc.equal(t["media"], "video"),
        "no_url": lambda t: pc.and_(pc.is_null(t["url"]), pc.is_null(t["path"])),
        "malformed_url": malformed_url,
        "no_upload_date": lambda t: pc.is_null(t["uploaded"]),
        "impossible_upload_date": lambda t: impossible_date(t, rules),
    }
    if rules.upload_after_capture:
        named["no_capture_date"] = lambda t: pc.is_null(t["taken"])
        named["not_after_capture"] = lambda t: pc.less_equal(
            t["uploaded"], pc.subtract(t["taken"], rules.date_tolerance)
        )
    return named


def malformed_url(table: pa.Table) -> pa.Array:
    """A URL that is not plain http(s) with a host; img2dataset would read `file:` URLs."""

    def bad(url: str | None) -> bool:
        if url is None:
            return False
        try:
            parts = urlsplit(url)
            return (
                parts.scheme not in ("http", "https")
                or not parts.hostname
                or (parts.port == 0)
                or any(c.isspace() or ord(c) < 32 or ord(c) > 126 for c in url)
            )
        except ValueError:
            return True

    return pa.array([bad(url) for url in table["url"].to_pylist()], pa.bool_())


def impossible_date(table: pa.Table, rules: FilterRules) -> pa.Array:
    """An upload time that stands for "unknown", or outside the believed span."""
    when = table["uploaded"]
    mask = pc.is_in(when, value_set=pa.array(SENTINELS, pa.int64()))
    if rules.earliest is not None:
        mask = pc.or_(mask, pc.less(when, rules.earliest))
    if rules.latest is not None:
        mask = pc.or_(mask, pc.greater_equal(when, rules.latest))
    return mask


def drop_faulty(table: pa.Table, rules: FilterRules, seen: set[str]) -> tuple[pa.Table, list[tuple[str, int, str]]]:
    """The rows without fault, and (id, row, reason) of the rest.

    seen: ids of earlier parts; the first row of an id stays, later ones are `duplicate_id`. It is extended.
    """
    dropped: list[tuple[str, int, str]] = []

    def drop(mask: np.ndarray[tuple[int], np.dtype[np.bool_]], reason: str) -> None:
        nonlocal table
        gone = table.filter(pa.array(mask))
        dropped.extend((i, r, reason) for i, r in zip(gone["id"].to_pylist(), gone["row"].to_pylist(), strict=True))
        table = table.filter(pa.array(~mask))

    for reason, fault in faults(rules).items():
        mask = pc.fill_null(fault(table), False)
        values = mask.combine_chunks() if isinstance(mask, pa.ChunkedArray) else mask
        drop(values.to_numpy(zero_copy_only=False).astype(bool), reason)
    again = np.zeros(len(table), bool)
    for i, name in enumerate(table["id"].to_pylist()):
        again[i] = name in seen
        seen.add(name)
    drop(again, "duplicate_id")
    return table, dropped
