"""Time buckets: half-open spans of upload time, in UTC.

- `equal`: the same number of photos in each, by upload time; the first n mod k buckets have one more [CLEAR]. Where a
  cut falls into one second, a hash of the ids divides its photos, the same in every run: neither the order of ids nor
  that of rows does, which may be that of classes.
- `calendar`: one bucket a year, decade, month or day that has photos; successive ones with fewer than `min_photos` are
  joined until they have as many. The rest joins the bucket before it; once buckets are frozen, it waits.
- `cuts`: cut points c1 < c2 < … make the buckets (-∞, c1), [c1, c2), …, [ck, ∞).
- `spans`: [start, end) pairs; photos between spans are dropped.
- `clear`: the eleven spans that CLEAR published.

A time may be an interval: a year, a day. A photo is in a bucket only if its whole interval is; else it is undecided.
`equal` never cuts within a second in which such an interval begins.

Upload times are UTC. Capture times are those of the camera's clock, in an unknown time zone; buckets never use them.

Frozen buckets of a collection that grows keep their borders and members, and later photos open new ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from driftline.curate.bucketing.settings import BucketSettings
from driftline.curate.core.errors import Shortage
from driftline.curate.core.seeding import tie_ranks
from driftline.curate.core.times.dates import iso, seconds_of

Ints = npt.NDArray[np.int64]
OUTSIDE, UNDECIDED, THIN = -1, -2, -3  # in place of the index of a bucket

# First upload of each of CLEAR's buckets, and the second after the last one [clear_10_time.json]. The published spans
# end with the last photo of a bucket. CLEAR's code counts the seconds before the next bucket's first photo, in which
# CLEAR has no photo, to that bucket; half-open spans count them to the bucket before.
_FIRST = (
    "2004-01-01T11:52:13", "2007-04-09T03:27:33", "2008-03-21T19:14:37", "2008-12-23T15:03:36", "2009-09-07T09:09:43",
    "2010-06-03T01:36:29", "2011-02-05T02:19:02", "2011-09-24T10:06:13", "2012-06-05T04:44:46", "2013-02-03T03:34:45",
    "2013-09-08T22:35:26", "2014-04-28T10:49:20",
)  # fmt: skip
CLEAR = tuple(pairwise(int(datetime.fromisoformat(t).replace(tzinfo=UTC).timestamp()) for t in _FIRST))


@dataclass(frozen=True)
class Bucket:
    """A span of time."""

    index: int
    """position in time order, from 0"""
    name: str
    """the index, or the period: "2008", "2008-05", "1990s", "2008 to 2010" """
    start: int | None
    """first second, UTC; None: unbounded"""
    end: int | None
    """second after the last one, UTC; None: unbounded"""
    count: int
    """photos in it"""

    def plain(self) -> dict[str, Any]:
        """As written to `buckets.json`."""
        return {
            "index": self.index,
            "name": self.name,
            "start": None if self.start is None else iso(self.start),
            "end": None if self.end is None else iso(self.end),
            "count": self.count,
        }


def times_of(table: pa.Table) -> tuple[Ints, Ints]:
    """(N,) the first, and (N,) the last second UTC at which each photo may have been uploaded. table: columns uploaded
    and until."""
    first = table["uploaded"].to_numpy().astype(np.int64)
    last = table["until"].combine_chunks().fill_null(-(2**62)).to_numpy().astype(np.int64)
    return first, np.maximum(first, last)


def assign(
    uploaded: Ints,
    ids: pa.Array | Sequence[str],
    settings: BucketSettings,
    until: Ints | None = None,
    waits: bool = False,
) -> tuple[Ints, list[Bucket]]:
    """uploaded (N,) seconds, ids (N,) string, until (N,): the last second that each may be (None: the same) → bucket
    index (N,), or OUTSIDE, UNDECIDED or THIN; and the buckets.

    waits: calendar periods at the end that together have fewer than `min_photos` are no bucket yet, their photos THIN.
    The order of the input does not matter. Raises Shortage if there are fewer photos than equal buckets.
    """
    last = uploaded if until is None else until
    if settings.kind == "equal":
        return _equal(uploaded, last, ids if isinstance(ids, pa.Array) else pa.array(ids, pa.string()), settings)
    if settings.kind == "calendar":
        return _calendar(uploaded, last, settings, waits)
    if settings.kind == "cuts":
        spans: list[tuple[int | None, int | None]] = list(pairwise([None, *settings.cuts, None]))
    else:
        spans = list(CLEAR if settings.kind == "clear" else settings.spans)
    number = np.full(len(uploaded), OUTSIDE, np.int64)
    for i, (start, end) in enumerate(spans):
        begins, ends = -np.inf if start is None else start, np.inf if end is None else end
        number[(uploaded < ends) & (last >= begins)] = UNDECIDED
        number[(uploaded >= begins) & (last < ends)] = i
    return number, [Bucket(i, str(i), a, b, int((number == i).sum())) for i, (a, b) in enumerate(spans)]


def most_concerned(first: Ints, last: Ints, number: Ints, buckets: Sequence[Bucket]) -> dict[str, Any] | None:
    """How much undecided photos could matter: {"photos": how many, "bucket": name of the one in which they could be the
    largest share, "share": of its photos and these}; None without any. first, last: (N,) seconds; number: (N,) as
    `assign` returns it."""
    undecided = number == UNDECIDED
    if not undecided.any():
        return None
    shares = []
    for bucket in buckets:
        begins, ends = (np.inf * sign if at is None else at for sign, at in ((-1, bucket.start), (1, bucket.end)))
        possible = int((undecided & (first < ends) & (last >= begins)).sum())
        shares.append((possible / max(1, possible + bucket.count), bucket.name))
    share, name = max(shares, key=lambda one: one[0], default=(1.0, ""))
    return {"photos": int(undecided.sum()), "bucket": name, "share": round(share, 4)}


def _equal(uploaded: Ints, last: Ints, ids: pa.Array, settings: BucketSettings) -> tuple[Ints, list[Bucket]]:
    n, k = len(uploaded), settings.count
    if n < k:
        raise Shortage(
            f"There are {n} photos for {k} equal buckets.", "Expected at least one each.", "Lower buckets.count."
        )
    times = np.sort(uploaded)
    base, extra = divmod(n, k)
    starts = np.array([i * base + min(i, extra) for i in range(k)])  # positions in time order where buckets start
    spread = np.flatnonzero(last > uploaded)
    together = np.full(k, settings.ties == "together") | np.isin(times[starts], uploaded[spread])
    starts = np.unique(np.where(together, np.searchsorted(times, times[starts], side="left"), starts))
    k = len(starts)
    # Only photos of the same second as a cut need their ids: for all others the time decides.
    number = np.searchsorted(times[starts], uploaded, side="right")
    number -= 1
    within = starts > np.searchsorted(times, times[starts], side="left")  # cuts within a second
    for moment in np.unique(times[starts][within]):
        tied = np.flatnonzero(uploaded == moment)
        places = np.searchsorted(times, moment, side="left") + np.arange(len(tied))
        drawn = np.argsort(tie_ranks(ids.take(pa.array(tied)).to_pylist()), kind="stable")
        number[tied[drawn]] = np.searchsorted(starts, places, side="right") - 1
    cuts = [int(t) for t in times[starts]]
    ends = [*cuts[1:], max(int(times[-1]), int(last.max())) + 1]
    number[spread[last[spread] >= np.array(ends)[number[spread]]]] = UNDECIDED
    sizes = np.bincount(number[number >= 0], minlength=k)
    return number, [Bucket(i, str(i), cuts[i], ends[i], int(sizes[i])) for i in range(k)]


def _calendar(uploaded: Ints, last: Ints, settings: BucketSettings, waits: bool) -> tuple[Ints, list[Bucket]]:
    if not len(uploaded):
        raise Shortage("There are no photos to cut into buckets.", "", "See the counts of the earlier stages.")
    unit, width = {"day": ("D", 1), "month": ("M", 1), "year": ("Y", 1), "decade": ("Y", 10)}[settings.unit]
    period, last_period = (
        times.astype("datetime64[s]").astype(f"datetime64[{unit}]").astype(np.int64) // width * width
        for times in (uploaded, last)
    )
    present, counts = np.unique(period[period == last_period], return_counts=True)
    starts, thin = _joined(counts.tolist(), settings.min_photos)
    if thin and not waits and len(starts) > 1:
        starts, thin = starts[:-1], False
    firsts, lasts = present[starts], present[[i - 1 for i in [*starts[1:], len(present)]]] if starts else present[:0]
    number = np.searchsorted(firsts, period, "right") - 1
    inside = number >= 0
    inside[inside] = last_period[inside] <= lasts[number[inside]]
    number[~inside] = UNDECIDED
    if thin and waits:
        number[number == len(firsts) - 1] = THIN
        firsts = firsts[:-1]
    buckets = []
    for i, (p, q) in enumerate(zip(firsts.tolist(), lasts.tolist(), strict=False)):
        start, begun, end = (np.datetime64(at, unit) for at in (p, q, q + width))  # type: ignore[call-overload]
        names = (f"{at}{'s' if settings.unit == 'decade' else ''}" for at in (start, begun))
        first, after = (int(at.astype("datetime64[s]").astype(np.int64)) for at in (start, end))
        buckets.append(Bucket(i, " to ".join(dict.fromkeys(names)), first, after, int((number == i).sum())))
    return number, buckets


def _joined(counts: Sequence[int], least: int) -> tuple[list[int], bool]:
    """Photos of successive periods → positions where buckets of at least `least` photos begin, and whether the last one
    has fewer.

    >>> _joined([5, 1, 2, 4, 1], 3)
    ([0, 1, 3, 4], True)
    """
    starts, photos = list[int](), least
    for i, n in enumerate(counts):
        if photos >= least:
            starts.append(i)
            photos = 0
        photos += n
    return starts, photos < least


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
