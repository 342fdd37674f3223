"""Time buckets: half-open spans of upload time, in UTC.

- `equal`: the same number of photos each, by (upload time, id), the first n mod k buckets one more [CLEAR].
- `calendar`: one bucket a year, decade, month or day that has photos.
- `cuts`: given cut points c1 < c2 < … make the buckets (-∞, c1), [c1, c2), …, [ck, ∞).
- `spans`: given [start, end) pairs; a photo in a gap belongs to none and is reported.
- `clear`: the eleven spans that CLEAR published, so that another collection is cut where CLEAR was.

Upload times are UTC. Capture times are what the camera's clock showed, without a zone; buckets never use them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from curate.core.errors import BadConfig, Shortage

Ints = npt.NDArray[np.int64]


# First upload of each of CLEAR's buckets, and the second after the last one [clear_10_time.json]. The published spans
# end with the last photo of a bucket; the seconds up to the next bucket's first photo, in which CLEAR has no photo, go
# to the next bucket in CLEAR's code, and to the earlier one here, where spans are half-open.
_FIRST = (
    "2004-01-01T11:52:13", "2007-04-09T03:27:33", "2008-03-21T19:14:37", "2008-12-23T15:03:36", "2009-09-07T09:09:43",
    "2010-06-03T01:36:29", "2011-02-05T02:19:02", "2011-09-24T10:06:13", "2012-06-05T04:44:46", "2013-02-03T03:34:45",
    "2013-09-08T22:35:26", "2014-04-28T10:49:20",
)  # fmt: skip
CLEAR = tuple(pairwise(int(datetime.fromisoformat(t).replace(tzinfo=UTC).timestamp()) for t in _FIRST))


@dataclass(frozen=True)
class BucketRules:
    """ties (kind equal): "split" follows CLEAR, photos of one second may fall on both sides of a cut, decided
    by id; "together" moves the cut to the next time stamp, and counts differ a little."""

    kind: Literal["equal", "calendar", "cuts", "spans", "clear"] = "equal"
    count: int = 11
    unit: Literal["day", "month", "year", "decade"] = "year"
    cuts: Sequence[int] = ()
    spans: Sequence[tuple[int, int]] = ()
    ties: Literal["split", "together"] = "split"
    first: int = 0  # index of the first bucket's name


@dataclass(frozen=True)
class Bucket:
    """start, end: seconds UTC, half-open; None = unbounded."""

    index: int
    name: str
    start: int | None
    end: int | None
    count: int

    def plain(self) -> dict[str, Any]:
        """As written to `buckets.json`."""
        return {
            "index": self.index,
            "name": self.name,
            "start": iso(self.start),
            "end": iso(self.end),
            "count": self.count,
        }


def iso(seconds: int | None) -> str | None:
    """Seconds UTC → ISO 8601.

    >>> iso(1331840483)
    '2012-03-15T19:41:23Z'
    """
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def assign(uploaded: Ints, ids: pa.Array | Sequence[str], rules: BucketRules) -> tuple[Ints, list[Bucket]]:
    """uploaded (N,) seconds, ids (N,) string → bucket index (N,) (-1 = in no bucket) and the buckets.

    Order of input does not matter. Raises Shortage when there are fewer photos than equal buckets.
    """
    if rules.kind == "equal":
        return _equal(uploaded, ids if isinstance(ids, pa.Array) else pa.array(ids, pa.string()), rules)
    if rules.kind == "calendar":
        return _calendar(uploaded, rules)
    if rules.kind == "cuts":
        cuts = list(rules.cuts)
        if not cuts or cuts != sorted(set(cuts)):
            raise BadConfig(f"buckets.cuts is {cuts}.", "Expected times in rising order, none twice.")
        edges: list[int | None] = [None, *cuts, None]
        spans = list(pairwise(edges))
    else:
        spans = [(int(a), int(b)) for a, b in (CLEAR if rules.kind == "clear" else rules.spans)]
        for (a, b), following in zip(spans, [*spans[1:], (None, None)], strict=True):
            if a >= b or (following[0] is not None and following[0] < b):  # type: ignore[operator]
                raise BadConfig(
                    f"buckets.spans holds [{iso(a)}, {iso(b)}).",
                    "Expected spans in order that do not overlap.",
                )
    where = np.full(len(uploaded), -1, np.int64)
    for i, (start, end) in enumerate(spans):
        inside = np.ones(len(uploaded), bool)
        if start is not None:
            inside &= uploaded >= start
        if end is not None:
            inside &= uploaded < end
        where[inside] = i
    buckets = [Bucket(i, str(i + rules.first), a, b, int((where == i).sum())) for i, (a, b) in enumerate(spans)]
    return where, buckets


def _equal(uploaded: Ints, ids: pa.Array, rules: BucketRules) -> tuple[Ints, list[Bucket]]:
    n, k = len(uploaded), rules.count
    if n < k:
        raise Shortage(
            f"There are {n} photos for {k} equal buckets.",
            "Expected at least one each.",
            "Lower buckets.count.",
        )
    times = np.sort(uploaded)
    base, extra = divmod(n, k)
    starts = np.array([i * base + min(i, extra) for i in range(k)])  # places in time order where buckets begin
    if rules.ties == "together":
        starts = np.unique(np.searchsorted(times, times[starts], side="left"))
        k = len(starts)
    # Only the photos of the very second of a cut need their ids: all others fall by their time alone.
    where = np.searchsorted(times[starts], uploaded, side="right") - 1
    inside = starts > np.searchsorted(times, times[starts], side="left")  # cuts in the middle of a second
    numbers = _are_numbers(ids) if inside.any() else True
    for moment in np.unique(times[starts][inside]):
        tied = np.flatnonzero(uploaded == moment)
        places = np.searchsorted(times, moment, side="left") + np.arange(len(tied))
        where[tied[_by_id(ids.take(pa.array(tied)), numbers)]] = np.searchsorted(starts, places, side="right") - 1
    cuts = [int(t) for t in times[starts]]
    ends = [*cuts[1:], int(times[-1]) + 1]
    sizes = np.bincount(where, minlength=k)
    return where, [Bucket(i, str(i + rules.first), cuts[i], ends[i], int(sizes[i])) for i in range(k)]


def _are_numbers(ids: pa.Array) -> bool:
    return bool(pc.all(pc.match_substring_regex(ids, "^[0-9]{1,18}$"), min_count=0).as_py())


def _by_id(ids: pa.Array, numbers: bool) -> Ints:
    """Positions in order of id: as numbers where all ids of the collection are, else as text."""
    key = ids.cast(pa.int64()).to_numpy() if numbers else np.array(ids.to_pylist(), dtype=np.str_)
    return np.argsort(key, kind="stable").astype(np.int64)


def _calendar(uploaded: Ints, rules: BucketRules) -> tuple[Ints, list[Bucket]]:
    if not len(uploaded):
        raise Shortage("There are no photos to cut into buckets.", "", "See the counts of the stages before.")
    unit = {"day": "D", "month": "M", "year": "Y", "decade": "Y"}[rules.unit]
    period = uploaded.astype("datetime64[s]").astype(f"datetime64[{unit}]").astype(np.int64)
    width = 1
    if rules.unit == "decade":
        period, width = (period + 1970) // 10 * 10 - 1970, 10
    present, where = np.unique(period, return_inverse=True)
    buckets = []
    for i, p in enumerate(present):
        start = np.datetime64(int(p), unit)  # type: ignore[call-overload]
        end = np.datetime64(int(p) + width, unit)  # type: ignore[call-overload]
        name = str(start) + ("s" if rules.unit == "decade" else "")
        seconds = [int(t.astype("datetime64[s]").astype(np.int64)) for t in (start, end)]
        buckets.append(Bucket(i, name, seconds[0], seconds[1], int((where == i).sum())))
    return where.astype(np.int64), buckets
