"""Frozen buckets of a collection that grows: they keep their borders and members, and later photos open new ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.bucketing.assign import Bucket, Ints, are_numbers, assign
from curate.bucketing.settings import BucketSettings

GROWING = ("equal", "calendar")  # the borders of other kinds are in the settings


def freeze(buckets: Sequence[Mapping[str, Any]], members: pa.Table, settings: BucketSettings) -> dict[str, Any]:
    """Borders of finished buckets as plain data. buckets: content of buckets.json; members: id, uploaded, bucket.

    A cut inside one second has the first id after it, because photos of that second are on both sides.
    """
    numeric = are_numbers(members["id"])
    borders = []
    for plain in buckets:
        start, end = (None if plain[key] is None else _seconds(plain[key]) for key in ("start", "end"))
        first = None
        if plain["index"] and start is not None:
            tied = members.filter(pc.equal(members["uploaded"], start))
            ids = tied.filter(pc.equal(tied["bucket"], plain["index"]))["id"].to_pylist()
            if ids and pc.any(pc.less(tied["bucket"], plain["index"])).as_py():
                first = min(ids, key=int if numeric else str)
        borders.append({"name": plain["name"], "start": start, "end": end, "first": first})
    return {"grow": settings.grow, "numeric": numeric, "buckets": borders}


def _seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def assign_frozen(
    uploaded: Ints, ids: pa.Array, frozen: Mapping[str, Any], settings: BucketSettings
) -> tuple[Ints, list[Bucket]]:
    """As `assign`, with frozen borders: photos after the last one open new buckets, or extend the last one, as
    `frozen["grow"]` says. Photos before the first bucket, or between calendar buckets, are in none."""
    borders: Sequence[Mapping[str, Any]] = frozen["buckets"]
    starts = np.array([b["start"] for b in borders], np.int64)
    ends = np.array([b["end"] for b in borders], np.int64)
    number = np.searchsorted(starts, uploaded, side="right") - 1
    for start in {b["start"] for b in borders if b["first"] is not None}:
        _divide(number, np.flatnonzero(uploaded == start), ids, start, frozen)
    follows = np.append(ends[:-1] == starts[1:], False)  # where the next bucket begins at once
    outside = (number >= 0) & ~follows[number] & (uploaded >= ends[number])
    later = outside & (uploaded >= ends[-1])
    number[outside] = -1
    spans = [(b["name"], b["start"], b["end"]) for b in borders]
    if later.any():
        last = int(uploaded[later].max()) + 1
        if frozen["grow"] == "extend-last":
            number[later] = len(spans) - 1
            spans[-1] = (spans[-1][0], spans[-1][1], last)
        elif settings.kind == "calendar":
            inner, opened = assign(uploaded[later], ids.filter(pa.array(later)), settings)
            number[later] = inner + len(spans)
            spans += [(b.name, max(b.start or 0, spans[-1][2]), b.end) for b in opened]
        else:
            number[later] = len(spans)
            spans.append((str(len(spans)), int(ends[-1]), last))
    sizes = np.bincount(number[number >= 0], minlength=len(spans))
    return number, [Bucket(i, name, a, b, int(sizes[i])) for i, (name, a, b) in enumerate(spans)]


def _divide(number: Ints, tied: Ints, ids: pa.Array, start: int, frozen: Mapping[str, Any]) -> None:
    """Give the photos of one second in which buckets are cut to their buckets, by id."""
    key = int if frozen["numeric"] else str
    cuts = [(i, b["first"]) for i, b in enumerate(frozen["buckets"]) if b["start"] == start]
    for position in tied.tolist():
        own = _key(ids[position].as_py(), key)
        number[position] = cuts[0][0] - 1 + sum(first is None or own >= _key(first, key) for _, first in cuts)


def _key(id_: str, kind: Any) -> tuple[int, Any]:
    """Ids that are no numbers are after those that are, where the collection had numbers only."""
    return (0, kind(id_)) if kind is str or id_.isdecimal() else (1, id_)
