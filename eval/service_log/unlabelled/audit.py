"""The audit that buys certainty: how many random labels settle an accuracy, and what few labels and all scores say
together."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from driftline.eval.scoring.bands import Floats, Z
from driftline.eval.service_log.cells import LEAST, Cells, Ints
from driftline.eval.service_log.reading import NONE, Log

PRECISION = 0.02  # half a 95 % interval


@dataclass(frozen=True)
class Audit:
    """Of K cells; NaN: not known."""

    value: Floats
    """(K,) accuracy of all predictions, from random labels and all scores"""
    low: Floats
    high: Floats
    alone: int
    """random labels a period for ± 2 points, by labels alone"""
    with_scores: int | None
    """the same with scores; None: none"""


def audit_of(log: Log, cells: Cells, rows_of: list[Ints]) -> Audit:
    """Prediction-powered intervals with power tuning [Angelopoulos et al. 2023, PPI++, eq. 3 and prop. 2]: the mean of
    all scores, corrected by what labels show of it. rows_of: the rows of each cell (`rows_of_cells`). Labels must be
    drawn at random: NaN where they are selective."""
    size, use = len(cells), cells.usable
    value, low, high = (np.full(size, np.nan) for _ in range(3))
    p = float(np.average(cells.accuracy[use], weights=cells.labelled[use]))
    designs = np.maximum(cells.labelled / np.maximum(cells.effective, 1e-9), 1.0)  # labels of one group say less
    design = float(np.median(designs[use]))
    alone = _labels(p * (1 - p) * design)
    if log.score is None or not np.isfinite(log.score).any():
        return Audit(value, low, high, alone, None)
    left = []
    for k in np.flatnonzero(use).tolist():
        inside = rows_of[k][np.isfinite(log.score[rows_of[k]])]
        labelled = inside[log.label[inside] != NONE]
        n, rows = len(labelled), len(inside)
        if n < LEAST:
            continue
        right = (log.label[labelled] == log.prediction[labelled]).astype(np.float64)
        score, all_scores = (log.score[of].astype(np.float64) for of in (labelled, inside))
        spread = float(all_scores.var())
        trust = float(np.clip(np.cov(right, score)[0, 1] / spread / (1 + n / rows), 0, 1)) if spread > 0 else 0.0
        rest = right - trust * score
        left.append((n, float(rest.var(ddof=1))))
        if n < rows and not cells.selective:
            error = math.sqrt((float(rest.var(ddof=1)) / n + trust**2 * spread / rows) * designs[k])
            value[k] = trust * float(all_scores.mean()) + float(rest.mean())
            low[k], high[k] = (float(np.clip(value[k] + side * Z * error, 0, 1)) for side in (-1, 1))
    with_scores = (
        _labels(design * float(np.average([v for _, v in left], weights=[n for n, _ in left]))) if left else None
    )
    return Audit(value, low, high, alone, with_scores)


def _labels(variance: float) -> int:
    return max(1, math.ceil((Z / PRECISION) ** 2 * variance))
