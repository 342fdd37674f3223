"""The interval of a mean over seeds, and p of many tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from driftline.eval.scoring.bands import Floats

EQUAL = 1e-12  # rounding
LEAST_SEEDS = 3  # of a test over seeds: two have one degree of freedom


def half_width(values: Sequence[float | None], level: float = 0.95) -> float | None:
    """Half the width of the t interval of the mean over seeds; None for one seed, for seeds that change nothing, and
    where a seed has no value.

    >>> round(half_width([0.90, 0.92, 0.94]), 4)
    0.0497
    """
    numbers = [value for value in values if value is not None]
    if len(numbers) < max(2, len(values)) or np.ptp(numbers) <= EQUAL:
        return None
    from scipy.special import stdtrit

    deviation = float(np.std(numbers, ddof=1))
    return float(stdtrit(len(values) - 1, (1 + level) / 2)) * deviation / float(np.sqrt(len(values)))


def holm(p: Floats) -> Floats:
    """(K,) p → p after Holm over those that are known; NaN stays [Holm 1979].

    >>> holm(np.array([0.04, np.nan, 0.01])).tolist()
    [0.04, nan, 0.02]
    """
    out, order = np.full(p.shape, np.nan), np.argsort(p, kind="stable")[: int((~np.isnan(p)).sum())]
    out[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)))
    return out
