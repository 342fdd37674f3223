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
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from driftline.curate.bucketing.settings import BucketSettings
from driftline.curate.core.errors import Shortage
from driftline.curate.core.seeding import tie_ranks
from driftline.curate.core.times.dates import iso

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
            f"There are {n} photos for {k} equal buckets.",
            "Expected at least one each.",
            "Lower buckets.count.",
        )
    times = np.sort(uploaded)
    base, extra = divmod(n, k)
    starts = np.array([i * base + min(i, extra) for i in range(k)])  # positions in time order where buckets start
    together = np.full(k, settings.ties == "together") | np.isin(times[starts], uploaded[last > uploaded])
    starts = np.unique(np.where(together, np.searchsorted(times, times[starts], side="left"), starts))
    k = len(starts)
    # Only photos of the same second as a cut need their ids: for all others the time decides.
    number = np.searchsorted(times[starts], uploaded, side="right") - 1
    within = starts > np.searchsorted(times, times[starts], side="left")  # cuts within a second
    for moment in np.unique(times[starts][within]):
        tied = np.flatnonzero(uploaded == moment)
        places = np.searchsorted(times, moment, side="left") + np.arange(len(tied))
        drawn = np.argsort(tie_ranks(ids.take(pa.array(tied)).to_pylist()), kind="stable")
        number[tied[drawn]] = np.searchsorted(starts, places, side="right") - 1
    cuts = [int(t) for t in times[starts]]
    ends = [*cuts[1:], max(int(times[-1]), int(last.max())) + 1]
    number[(last > uploaded) & (last >= np.array(ends)[number])] = UNDECIDED
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
