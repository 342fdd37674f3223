"""Which judge is worse in which bucket: its answers against people's, bucket by bucket."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from driftline.curate.core.parsing import rows_of
from driftline.curate.validation.judging.guarantee import classical, score_interval

LEVEL = 0.01  # of false alarms, over all judges and buckets together (Holm)
Pair = tuple[str, int]  # worker, bucket
Floats = npt.NDArray[np.floating]


def judge_table(
    opinions: pa.Table, people: Mapping[str, frozenset[str]], weights: Mapping[str, float] | None = None
) -> list[dict[str, Any]]:
    """One row per judge and bucket: answers that people gave, too, share of equal ones with its interval, and `worse`.

    people: id → labels, of the images that people answered; empty where they do not agree, which no judge does.
    weights: id → how many images each of them stands for (default: 1): people answer hard images more often than
    others, so that the plain share is not that of all images. Intervals and test use the effective number of images.
    worse: the judge agrees with people less often here than in the other buckets (Fisher's
    exact test, one-sided, Holm's correction over all rows).
    """
    of_pair: dict[Pair, list[tuple[float, bool]]] = defaultdict(list)
    for id_, worker, bucket, labels, fault in rows_of(opinions, "id", "worker", "bucket", "labels", "fault"):
        if fault is None and id_ in people:
            weight = 1.0 if weights is None else weights[id_]
            of_pair[worker, bucket].append((weight, frozenset(labels) == people[id_]))
    pairs = sorted(of_pair)
    n: dict[Pair, int] = {}
    right: dict[Pair, int] = {}
    for pair in pairs:
        w, equal = np.array(of_pair[pair]).T
        n[pair] = _effective(w, equal)
        right[pair] = round(float(w @ equal / w.sum()) * n[pair])
    chances = {pair: _chance(pair, right, n) for pair in pairs}
    worse: set[Pair] = set()
    for place, pair in enumerate(sorted(pairs, key=lambda p: chances[p])):
        if chances[pair] > LEVEL / (len(pairs) - place):
            break
        worse.add(pair)
    rows = []
    for pair in pairs:
        w, equal = np.array(of_pair[pair]).T
        share = float(w @ equal / w.sum())
        agreed = (
            score_interval(share, share * (1 - share) / n[pair]) if 0 < share < 1 else classical(right[pair], n[pair])
        )
        rows.append(
            {
                "judge": pair[0],
                "bucket": pair[1],
                "answers": len(w),
                "agreement": share,
                "low": agreed.low,
                "high": agreed.high,
                "worse": pair in worse,
            }
        )
    return rows


def _effective(weights: Floats, equal: Floats) -> int:
    """Number of images drawn at random that tell the share of `equal` as well as these, of which some were all asked
    and others drawn: two strata [Cochran 1977, sec. 5]; at most those that they stand for. In each stratum one more
    answer is half right."""
    if len(np.unique(weights)) == 1:
        return len(weights)
    share = variance = 0.0
    for stratum in (weights == 1, weights != 1):
        w = weights[stratum]
        if len(w):
            right = (w @ equal[stratum] / w.mean() + 0.5) / (len(w) + 1)
            share += right * w.sum() / weights.sum()
            variance += right * (1 - right) * float(w @ w) / weights.sum() ** 2
    return max(1, round(min(share * (1 - share) / variance, float(weights.sum()))))


def _chance(pair: Pair, right: Mapping[Pair, int], n: Mapping[Pair, int]) -> float:
    """Probability of so few agreements in this bucket if the judge is equally good in all: hypergeometric."""
    others = [p for p in n if p[0] == pair[0]]
    total, good, drawn = sum(n[p] for p in others), sum(right[p] for p in others), n[pair]
    least = max(0, drawn - (total - good))
    logs = (_choose(good, k) + _choose(total - good, drawn - k) for k in range(least, right[pair] + 1))
    return min(1.0, sum(math.exp(log - _choose(total, drawn)) for log in logs))


def _choose(n: int, k: int) -> float:
    """Logarithm of the number of ways to take k of n."""
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def distrusted(table: list[dict[str, Any]]) -> set[Pair]:
    """The (judge, bucket) pairs that do not count where a model alone would decide."""
    return {(row["judge"], row["bucket"]) for row in table if row["worse"]}


def without(opinions: pa.Table, pairs: set[Pair]) -> pa.Table:
    """The opinions of all other (judge, bucket) pairs."""
    keep = [pair not in pairs for pair in rows_of(opinions, "worker", "bucket")]
    return opinions.filter(pa.array(keep, pa.bool_()))
