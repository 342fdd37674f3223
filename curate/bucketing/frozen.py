"""Frozen buckets of a collection that grows: they keep their borders and members, and later photos open new ones."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.curate.bucketing.assign import OUTSIDE, UNDECIDED, Bucket, Ints, assign
from driftline.curate.bucketing.settings import BucketSettings
from driftline.curate.core.seeding import tie_ranks
from driftline.curate.core.times.dates import seconds_of

GROWING = ("equal", "calendar")  # the borders of other kinds are in the settings


def freeze(buckets: Sequence[Mapping[str, Any]], members: pa.Table, settings: BucketSettings) -> dict[str, Any]:
    """Borders of finished buckets as plain data. buckets: content of buckets.json; members: id, uploaded, until,
    bucket.

    A cut inside one second has the id with the lowest rank after it, because photos of that second are on both sides.
    """
    borders = []
    for plain in buckets:
        start, end = (None if plain[key] is None else seconds_of(plain[key]) for key in ("start", "end"))
        first = None
        if plain["index"] and start is not None:
            tied = members.filter(pc.and_(pc.equal(members["uploaded"], start), pc.is_null(members["until"])))
            ids, later = tied["id"].to_pylist(), tied["bucket"].to_numpy() >= plain["index"]
            if later.any() and not later.all():
                first = ids[int(np.where(later, tie_ranks(ids), np.uint64(2**64 - 1)).argmin())]
        borders.append({"name": plain["name"], "start": start, "end": end, "first": first})
    return {"grow": settings.grow, "buckets": borders}


def assign_frozen(
    uploaded: Ints, ids: pa.Array, frozen: Mapping[str, Any], settings: BucketSettings, until: Ints | None = None
) -> tuple[Ints, list[Bucket]]:
    """As `assign`, with frozen borders: photos after the last one open new buckets, or extend the last one, as
    `frozen["grow"]` says. Photos before the first bucket, or between calendar buckets, are in none."""
    last = uploaded if until is None else until
    borders: Sequence[Mapping[str, Any]] = frozen["buckets"]
    starts = np.array([b["start"] for b in borders], np.int64)
    ends = np.array([b["end"] for b in borders], np.int64)
    number = np.searchsorted(starts, uploaded, side="right") - 1
    for start in {b["start"] for b in borders if b["first"] is not None}:
        _divide(number, np.flatnonzero((uploaded == start) & (last == uploaded)), ids, start, frozen)
    follows = np.append(ends[:-1] == starts[1:], False)  # where the next bucket begins at once
    outside = (number >= 0) & ~follows[number] & (uploaded >= ends[number])
    later = outside & (uploaded >= ends[-1])
    number[outside] = OUTSIDE
    spans = [(b["name"], b["start"], b["end"]) for b in borders]
    if later.any():
        end = int(last[later].max()) + 1
        if frozen["grow"] == "extend-last":
            number[later] = len(spans) - 1
            spans[-1] = (spans[-1][0], spans[-1][1], end)
        elif settings.kind == "calendar":
            inner, opened = assign(uploaded[later], ids.filter(pa.array(later)), settings, last[later], True)
            number[later] = np.where(inner >= 0, inner + len(spans), inner)
            spans += [(b.name, max(b.start or 0, spans[-1][2]), b.end) for b in opened]
        else:
            number[later] = len(spans)
            spans.append((str(len(spans)), int(ends[-1]), end))
    begins, ends = (np.array([span[place] for span in spans], np.int64) for place in (1, 2))
    number[(number >= 0) & (last > uploaded) & (last >= ends[np.maximum(number, 0)])] = UNDECIDED
    touches = np.searchsorted(begins, last, side="right") > np.searchsorted(ends, uploaded, side="right")
    number[(number == OUTSIDE) & touches] = UNDECIDED
    sizes = np.bincount(number[number >= 0], minlength=len(spans))
    return number, [Bucket(i, name, a, b, int(sizes[i])) for i, (name, a, b) in enumerate(spans)]


def _divide(number: Ints, tied: Ints, ids: pa.Array, start: int, frozen: Mapping[str, Any]) -> None:
    """Give the photos of one second in which buckets are cut to their buckets, by the ranks of their ids."""
    cuts = [(i, b["first"]) for i, b in enumerate(frozen["buckets"]) if b["start"] == start]
    own = tie_ranks(ids.take(pa.array(tied)).to_pylist())
    number[tied] = cuts[0][0] - 1
    for _, first in cuts:
        number[tied] += 1 if first is None else own >= tie_ranks([first])[0]
