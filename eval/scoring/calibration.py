"""Do models become overconfident as they age? Confidence against accuracy, by age.

A confidence is a learner's probability that its answer is right; everything here is of the answer alone (top label).
The calibration error is the root of the mean squared difference of confidence and accuracy over bins, less its bias:
with few samples, bins of a calibrated model differ by chance.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from driftline.eval.protocol import stored_protocol
from driftline.eval.rows import Run, groups, new_models
from driftline.eval.scoring.bands import Array, Band, Floats
from driftline.eval.scoring.sums import Draws, Resampling, bias, drawn, draws_of, summed
from driftline.eval.scoring.timeline import Timeline, timeline
from driftline.stream_builder.stream import Stream

BINS = 15  # of equal width, as in Guo et al. 2017
REPLICATES = 300  # at most: variances alone are needed


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


def calibration(
    runs: Sequence[Run], stream: Stream | None = None, resampling: Resampling | None = None
) -> list[Calibration | None]:
    """One entry for each result of `summary` of the same runs, in its order; None for a learner without confidences,
    and where the protocol does not test models on steps.

    stream: gives the groups of uploaders and near copies. Raises IncompatibleStream for another stream than that
    of the runs.
    """
    draws = draws_of(runs, resampling, stream)
    few = replace(draws.resampling, replicates=min(REPLICATES, draws.resampling.replicates))
    draws = replace(draws, resampling=few)
    return [_calibration(group, draws) for group in groups(runs)]


def _calibration(runs: Sequence[Run], draws: Draws) -> Calibration | None:
    kind, times = stored_protocol(runs[0].about["protocol"]), timeline(runs[0].about)
    tests = [new_models(run.rows, kind.roles.step) for run in runs]
    answers = [row.answers for of in tests for row in of.values()]
    if not answers or any(one is None or one.confidence is None for one in answers):
        return None
    lags = np.unique([j - i for of in tests for i, j in of])
    parts = []
    for of in tests:
        part = []
        for (i, j), row in of.items():
            if (a := row.answers) is not None:
                known = ~np.isnan(a.confidence)
                sure, right = np.where(known, a.confidence, 0).astype(np.float64), a.label == a.predicted
                cell = int(np.searchsorted(lags, j - i)) * BINS + bin_of(sure)
                values = (sure, right & known, np.where(known, (sure - right) ** 2, 0), known)
                part.append((a, cell, values))
        parts.append(part)
    of_bins = summed(parts, (len(lags), BINS), draws)
    of_bins = replace(of_bins, clusters=of_bins.present().any(-1).sum(0))
    found = drawn(_measures, of_bins, each=True)
    confidence, right, _, n = of_bins.total().sum(1)
    filled = np.where(n > 0, n, np.nan)
    of_lags = [np.array([times.at[j] - times.at[i] for of in tests for i, j in of if j - i == k]) for k in lags]
    error = replace(found["ece"], value=found["ece"].value - bias(_measures, of_bins, "ece")).symmetric()
    return Calibration(
        timeline=times,
        lags=lags,
        age=np.array([of_lag.mean() for of_lag in of_lags]),
        youngest=np.array([of_lag.min() for of_lag in of_lags]),
        oldest=np.array([of_lag.max() for of_lag in of_lags]),
        gap=found["gap"].symmetric(),
        ece=Band(*(np.sqrt(np.maximum(end, 0.0)) for end in (error.value, error.low, error.high))),
        brier=found["brier"].symmetric(),
        confidence=confidence / filled,
        accuracy=right / filled,
        n=n.astype(np.int64),
    )


def _measures(confidence: Array, right: Array, squares: Array, n: Array) -> dict[str, Array]:
    """Sums (..., K, BINS) → gap, squared calibration error and Brier score (..., K)."""
    size = n.sum(-1)
    return {
        "gap": (confidence.sum(-1) - right.sum(-1)) / size,
        "ece": ((confidence - right) ** 2 / np.maximum(n, 1)).sum(-1) / size,
        "brier": squares.sum(-1) / size,
    }


def bin_of(confidence: Array) -> npt.NDArray[np.int64]:
    """Number of the bin of each confidence; a border belongs to the bin below, as in Guo et al. 2017."""
    return np.clip(np.ceil(np.asarray(confidence, np.float64) * BINS - 1e-6).astype(np.int64) - 1, 0, BINS - 1)
