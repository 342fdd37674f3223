"""Estimates with the intervals of their bootstrap replicates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
LEVEL = 0.95


@dataclass(frozen=True)
class Band:
    """Estimates, each with the ends of its 95 % interval; NaN: not known."""

    value: Floats
    low: Floats
    high: Floats

    def __getitem__(self, at: int) -> Band:
        """That of one place of the first axis."""
        return Band(self.value[at], self.low[at], self.high[at])


def band(value: Array, drawn: Array) -> Band:
    """value (...), drawn (B, ...) → percentile intervals; NaN where a value is not known."""
    value = np.asarray(value, np.float64)
    low, high = quantiles(drawn, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return Band(value, np.where(np.isnan(value), np.nan, low), np.where(np.isnan(value), np.nan, high))


def quantiles(drawn: Array, shares: tuple[float, ...]) -> list[Floats]:
    """Quantiles over the first axis, linear between values, without NaN; NaN where all are. Infinity may be drawn."""
    ordered = np.sort(drawn, axis=0)  # NaN last
    counts = (~np.isnan(ordered)).sum(0)
    bounds = []
    for share in shares:
        place = share * np.maximum(counts - 1, 0)
        below = np.floor(place).astype(np.int64)
        above = np.minimum(below + 1, np.maximum(counts - 1, 0))
        left, right = (np.take_along_axis(ordered, at[None], 0)[0].astype(np.float64) for at in (below, above))
        part = place - below
        with np.errstate(invalid="ignore"):
            between = left + part * (right - left)
        bounds.append(np.where((part > 0) & (left != right), between, left))
    return bounds


def mean(values: Array, axis: int) -> Array:
    """The mean without NaN; NaN of nothing."""
    finite = ~np.isnan(values)
    count = finite.sum(axis)
    return np.asarray(np.where(count, np.where(finite, values, 0).sum(axis) / np.maximum(count, 1), np.nan))
