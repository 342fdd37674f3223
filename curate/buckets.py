"""Time buckets: half-open spans of upload time, in UTC.

- `equal`: the same number of photos each, by (upload time, id), the first n mod k buckets one more [CLEAR].
- `calendar`: one bucket a year, decade, month or day that has photos.
- `cuts`: given cut points c1 < c2 < … make the buckets (-∞, c1), [c1, c2), …, [ck, ∞).
- `spans`: given [start, end) pairs; a photo in a gap belongs to none and is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from curate.ground.errors import BadConfig, Shortage

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BucketRules:
    """ties (kind equal): "split" follows CLEAR, photos of one second may fall on both sides of a cut, decided
    by id; "together" moves the cut to the next time stamp, and counts differ a little."""

    kind: Literal["equal", "calendar", "cuts", "spans"] = "equal"
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


def assign(uploaded: Ints, ids: Sequence[str], rules: BucketRules) -> tuple[Ints, list[Bucket]]:
    """uploaded (N,) seconds, ids (N,) → bucket index (N,) (-1 = in no bucket) and the buckets.

    Order of input does not matter. Raises Shortage when there are fewer photos than equal buckets.
    """
    if rules.kind == "equal":
        return _equal(uploaded, ids, rules)
    if rules.kind == "calendar":
        return _calendar(uploaded, rules)
    if rules.kind == "cuts":
        cuts = list(rules.cuts)
        if not cuts or cuts != sorted(set(cuts)):
            raise BadConfig(f"buckets.cuts is {cuts}.", "Expected times in rising order, none twice.")
        edges: list[int | None] = [None, *cuts, None]
        spans = list(pairwise(edges))
    else:
        spans = [(int(a), int(b)) for a, b in rules.spans]
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


def by_time(uploaded: Ints, ids: Sequence[str]) -> Ints:
    """Positions in order of (upload time, id); ids that are all numbers compare as numbers, else as text."""
    if all(i.isdigit() and len(i) < 19 for i in ids):
        key: npt.NDArray[Any] = np.array([int(i) for i in ids], np.int64)
    else:
        key = np.array(ids, dtype=np.str_)
    return np.lexsort((key, uploaded)).astype(np.int64)


def _equal(uploaded: Ints, ids: Sequence[str], rules: BucketRules) -> tuple[Ints, list[Bucket]]:
    n, k = len(uploaded), rules.count
    if n < k:
        raise Shortage(
            f"There are {n} photos for {k} equal buckets.",
            "Expected at least one each.",
            "Lower buckets.count.",
        )
    order = by_time(uploaded, ids)
    base, extra = divmod(n, k)
    starts = np.array([i * base + min(i, extra) for i in range(k)])
    if rules.ties == "together":
        times = uploaded[order]
        starts = np.unique(np.searchsorted(times, times[starts], side="left"))
        k = len(starts)
    where = np.empty(n, np.int64)
    where[order] = np.searchsorted(starts, np.arange(n), side="right") - 1
    cuts = [int(uploaded[order[s]]) for s in starts]
    ends = [*cuts[1:], int(uploaded[order[-1]]) + 1]
    sizes = np.bincount(where, minlength=k)
    return where, [Bucket(i, str(i + rules.first), cuts[i], ends[i], int(sizes[i])) for i in range(k)]


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
