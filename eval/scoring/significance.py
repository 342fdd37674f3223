"""Confidence intervals over seeds, and a paired test between learners."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def half_width(values: Sequence[float], level: float = 0.95) -> float | None:
    """Half the width of the t interval of the mean over seeds; None for one seed.

    >>> round(half_width([0.90, 0.92, 0.94]), 4)
    0.0497
    """
    if len(values) < 2:
        return None
    from scipy.stats import t

    deviation = float(np.std(values, ddof=1))
    return float(t.ppf((1 + level) / 2, len(values) - 1)) * deviation / float(np.sqrt(len(values)))


def paired(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Two-sided p of the paired t test: the same seeds under two learners; None for fewer than two.

    >>> paired([0.9, 0.9], [0.9, 0.9])
    1.0
    """
    differences = np.asarray(a, np.float64) - np.asarray(b, np.float64)
    if len(differences) < 2:
        return None
    if np.ptp(differences) == 0:  # no spread: equal, or different for certain
        return 1.0 if differences[0] == 0 else 0.0
    from scipy.stats import ttest_rel

    return float(ttest_rel(a, b).pvalue)
