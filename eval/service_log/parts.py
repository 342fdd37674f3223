"""Classes and groups of a log that age fastest, and whether confidence stays true."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.eval.scoring.bands import Z
from driftline.eval.service_log.cells import DENSE, LEAST, Cells
from driftline.eval.service_log.reading import NONE, Log
from driftline.eval.service_log.trend import Line, line

SHOWN = 60  # classes or groups, those with the most labels


@dataclass(frozen=True)
class Part:
    """A class or a group."""

    name: str
    n: int
    """labels in cells that count"""
    accuracy: float
    """of all of them"""
    fit: Line | None
    """over the cells with enough labels; None: fewer than two ages of one version"""


@dataclass(frozen=True)
class Confidence:
    """At one age."""

    lag: int
    n: int
    """labels with a score"""
    confidence: float
    """mean"""
    accuracy: float
    gap: float
    """mean confidence minus accuracy; above 0: overconfident"""
    low: float
    high: float


def parts_of(log: Log, cells: Cells, part: npt.NDArray[np.int32] | None, names: list[str]) -> list[Part]:
    """Accuracy of each class or group, the one that falls fastest first. part (N,): its number."""
    size = len(cells)
    if part is None or len(names) < 2 or size * len(names) > DENSE:
        return []
    use = cells.usable
    of = np.flatnonzero(log.label != NONE)  # places: of few labels faster than a mask
    of = of[part[of] != NONE]
    key = cells.of[of].astype(np.int64) * len(names) + part[of]
    hit = log.label[of] == log.prediction[of]
    n, right = (np.bincount(key, weights, size * len(names)).reshape(size, -1)[use] for weights in (None, hit))
    often = np.argsort(-n.sum(0), kind="stable")[:SHOWN]
    shown = [_part(names[c], n[:, c], right[:, c], cells, use) for c in often.tolist() if n[:, c].sum() >= LEAST]
    return sorted(shown, key=lambda one: one.fit.slope if one.fit is not None else np.inf)


def _part(name: str, n: npt.NDArray[Any], right: npt.NDArray[Any], cells: Cells,
          use: npt.NDArray[np.bool_]) -> Part:  # fmt: skip
    enough = n >= LEAST
    version, period, lag = (of[use][enough] for of in (cells.version, cells.period, cells.lag))
    fit = None
    if len(np.unique(version)) < len(version):
        accuracy, design = right[enough] / n[enough], cells.labelled[use][enough] / cells.effective[use][enough]
        fit = line(version, period, lag, accuracy, n[enough] / np.maximum(design, 1))
        fit = None if np.isnan(fit.slope) else fit
    return Part(name, int(n.sum()), float(right.sum() / n.sum()), fit)


def confidence_of(log: Log, cells: Cells) -> list[Confidence]:
    """Mean confidence against accuracy by age; [] without scores."""
    if log.score is None:
        return []
    of = np.flatnonzero(log.label != NONE)
    of = of[np.isfinite(log.score[of]) & cells.usable[cells.of[of]]]
    cell, score = cells.of[of], log.score[of].astype(np.float64)
    gap = score - (log.label[of] == log.prediction[of])
    out = []
    for lag in np.unique(cells.lag[cell]).tolist():
        at = cells.lag[cell] == lag
        n = int(at.sum())
        if n < LEAST:
            continue
        own = cells.usable & (cells.lag == lag)
        design = max(float(cells.labelled[own].sum() / cells.effective[own].sum()), 1.0)
        half = Z * float(gap[at].std(ddof=1)) * (design / n) ** 0.5
        mean = float(gap[at].mean())
        out.append(
            Confidence(lag, n, float(score[at].mean()), float((score - gap)[at].mean()), mean, mean - half, mean + half)
        )
    return out
