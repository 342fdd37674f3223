"""Do models become overconfident as they age? Confidence against accuracy, by age.

A confidence is a learner's probability that its answer is right; everything here is of the answer alone (top label).
The calibration error is the root of the mean squared difference of confidence and accuracy over bins, less its bias:
with few samples, bins of a calibrated model differ by chance. The bias and all intervals are from a delete-a-group
jackknife: test samples, or their clusters, in 50 groups at random [Kott 2001]; other seeds add what they add to a mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from driftline.eval.outcomes import check_stream
from driftline.eval.protocol import stored_protocol
from driftline.eval.rows import Answers, Run, groups, new_models
from driftline.eval.scoring.bands import Array, Band, Floats, half_width_of, of_other_seeds, variance
from driftline.eval.scoring.cells import clusters_of, spread_out
from driftline.eval.scoring.timeline import Timeline, timeline
from driftline.stream_builder.stream import Stream

BINS = 15  # of equal width, as in Guo et al. 2017
GROUPS = 50  # of the jackknife


@dataclass(frozen=True)
class Calibration:
    """One learner's calibration by lag. K lags, M bins."""

    timeline: Timeline
    """unit of `age`"""
    lags: npt.NDArray[np.int64]
    """(K,) steps from training to test, rising"""
    age: Floats
    """(K,) mean time from training to test"""
    youngest: Floats
    """(K,) the shortest of these times"""
    oldest: Floats
    """(K,) the longest of these times"""
    gap: Band
    """(K,) mean confidence minus accuracy; above 0: overconfident"""
    ece: Band
    """(K,) calibration error: root of the squared difference of confidence and accuracy, mean over bins by their
    samples, less its bias; 0 at least"""
    brier: Band
    """(K,) mean squared difference of confidence and being right"""
    confidence: Floats
    """(K, M) mean confidence in each bin; NaN: empty"""
    accuracy: Floats
    """(K, M) accuracy in each bin"""
    n: npt.NDArray[np.int64]
    """(K, M) answers in each bin, of all seeds and pairs of steps"""


def calibration(runs: Sequence[Run], stream: Stream | None = None) -> list[Calibration | None]:
    """One entry for each result of `summary` of the same runs, in its order; None for a learner without confidences,
    and where the protocol does not test models on steps.

    stream: gives the groups of uploaders and near copies. Raises IncompatibleStream for another stream than that
    of the runs.
    """
    if stream is not None:
        check_stream(runs, stream)
    clusters = clusters_of(runs, stream)
    return [_calibration(group, stream, clusters) for group in groups(runs)]


def _calibration(runs: Sequence[Run], stream: Stream | None, clusters: Array | None) -> Calibration | None:
    kind, times = stored_protocol(runs[0].about["protocol"]), timeline(runs[0].about)
    by_lag: dict[int, list[tuple[int, int, Answers]]] = {}  # seed, trained step, answers
    for s, run in enumerate(runs):
        for (i, j), row in new_models(run.rows, kind.roles.step).items():
            if row.answers is None or row.answers.confidence is None:
                return None
            by_lag.setdefault(j - i, []).append((s, i, row.answers))
    if not by_lag:
        return None
    lags, ages = sorted(by_lag), times.ages()
    by_age = [_of_lag(by_lag[k], len(runs), clusters) for k in lags]
    of_lags = [np.array([ages[i, i + k] for _, i, _ in by_lag[k]]) for k in lags]
    gap, ece, brier = map(Band.stacked, zip(*(one.measures for one in by_age), strict=True))
    return Calibration(
        timeline=times,
        lags=np.array(lags, np.int64),
        age=np.array([of_lag.mean() for of_lag in of_lags]),
        youngest=np.array([of_lag.min() for of_lag in of_lags]),
        oldest=np.array([of_lag.max() for of_lag in of_lags]),
        gap=gap,
        ece=ece,
        brier=brier,
        confidence=np.stack([one.confidence for one in by_age]),
        accuracy=np.stack([one.accuracy for one in by_age]),
        n=np.stack([one.n for one in by_age]),
    )


@dataclass(frozen=True)
class _Lag:
    """What `Calibration` says of one lag."""

    measures: list[Band]
    """gap, ece, brier"""
    confidence: Floats
    accuracy: Floats
    n: npt.NDArray[np.int64]


def _of_lag(tests: Sequence[tuple[int, int, Answers]], seeds: int, clusters: Array | None) -> _Lag:
    confidence = np.concatenate([np.asarray(a.confidence, np.float32) for _, _, a in tests])
    right = np.concatenate([a.label == a.predicted for _, _, a in tests])
    confident = ~np.isnan(confidence)
    sample = np.concatenate([a.sample for _, _, a in tests])[confident]
    seed = np.concatenate([np.full(len(a), s, np.int64) for s, _, a in tests])[confident]
    confidence, right = confidence[confident], right[confident]
    bins = bin_of(confidence)
    names, cluster = _numbered(sample if clusters is None else clusters[sample])
    joined = np.arange(len(names)) if len(names) <= GROUPS else spread_out(names) % GROUPS
    group = np.unique(joined, return_inverse=True)[1][cluster]
    number = int(group.max(initial=-1)) + 1
    key, shape = (seed * number + group) * BINS + bins, (seeds, number, BINS)
    counts, sums, hits, squares = (
        np.bincount(key, weights, int(np.prod(shape))).reshape(shape).astype(np.float64)
        for weights in (None, confidence, right, (confidence - right) ** 2)
    )
    all_ = [part.sum((0, 1)) for part in (counts, sums, hits)]
    filled = np.where(all_[0] > 0, all_[0], np.nan)
    gap, ece, brier = (_band(measure, k == 1, counts, sums, hits, squares) for k, measure in enumerate(MEASURES))
    ece = Band(*(np.sqrt(np.maximum(end, 0.0)) for end in (ece.value, ece.low, ece.high)))
    return _Lag([gap, ece, brier], all_[1] / filled, all_[2] / filled, all_[0].astype(np.int64))


def _numbered(values: Array) -> tuple[Array, npt.NDArray[np.int64]]:
    """`np.unique` with the inverse, of whole numbers from 0 without sorting them."""
    if values.dtype.kind not in "iu" or not len(values) or values.min() < 0 or values.max() > 64 * len(values):
        return np.unique(values, return_inverse=True)
    there = np.zeros(int(values.max()) + 1, bool)
    there[values] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[values]


def bin_of(confidence: Array) -> npt.NDArray[np.int64]:
    """Number of the bin of each confidence; a border belongs to the bin below, as in Guo et al. 2017."""
    return np.clip(np.ceil(np.asarray(confidence, np.float64) * BINS - 1e-6).astype(np.int64) - 1, 0, BINS - 1)


MEASURES: tuple[Callable[..., Floats], ...] = (  # of sums by bin: gap, squared calibration error and Brier score
    lambda n, confidence, right, squares: (confidence.sum(-1) - right.sum(-1)) / n.sum(-1),
    lambda n, confidence, right, squares: ((confidence - right) ** 2 / np.maximum(n, 1)).sum(-1) / n.sum(-1),
    lambda n, confidence, right, squares: squares.sum(-1) / n.sum(-1),
)


def _band(function: Callable[..., Floats], debiased: bool, *sums: Floats) -> Band:
    """Sums (S, G, M) → mean over seeds of a measure with its interval over groups and seeds. debiased: less the bias
    that a jackknife finds."""
    seeds, number = sums[0].shape[:2]
    of_seeds = function(*(part.sum(1) for part in sums))  # (S,)
    if number < 2:
        return Band(of_seeds.mean(), np.array(np.nan), np.array(np.nan))
    without = function(*(part.sum(1, keepdims=True) - part for part in sums))  # (S, G)
    if debiased:
        of_seeds = of_seeds + (number - 1) * (of_seeds - without.mean(1))
    scale = (number - 1) / number
    of_samples, of_single = (
        scale * ((one - one.mean(-1, keepdims=True)) ** 2).sum(-1) for one in (without.mean(0), without)
    )
    single = (of_single.mean() - of_samples) / max(1, seeds - 1)
    more = of_other_seeds(variance(of_seeds) / seeds, single, seeds)
    half = half_width_of(of_samples, np.array(number), more, seeds)
    value = of_seeds.mean()
    return Band(value, value - half, value + half)
