"""Estimates with the intervals of their bootstrap replicates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
LEVEL = 0.95
Z = 1.959964  # of a normal distribution


@dataclass(frozen=True)
class Band:
    """Estimates, each with the ends of its 95 % interval; NaN: not known."""

    value: Floats
    low: Floats
    high: Floats

    @classmethod
    def stacked(cls, bands: Sequence[Band]) -> Band:
        """Those of several, one after the other on a new first axis."""
        return cls(*(np.stack([getattr(one, end) for one in bands]) for end in ("value", "low", "high")))

    def __getitem__(self, at: int) -> Band:
        """That of one place of the first axis."""
        return Band(self.value[at], self.low[at], self.high[at])

    def of_share(self) -> Band:
        """With ends within 0 and 1, as shares are: an interval from a spread may go beyond."""
        return Band(self.value, np.clip(self.low, 0, 1), np.clip(self.high, 0, 1))


@dataclass(frozen=True)
class Layout:
    """What the first axis of replicates has: `replicates` with other weights of the samples and all seeds; then, of
    several seeds, `singles`, the k-th of the seed k mod S alone, with the weights of the k-th replicate; then S with
    each seed alone and equal weights."""

    replicates: int
    singles: int
    seeds: int
    clusters: int = 0
    """of samples, times models: with few, percentiles are too narrow; 0: many"""

    @property
    def narrow(self) -> float:
        """By how much [Hesterberg 2015, sec. 4.3]."""
        count = self.clusters
        return student(count) / Z * (count / (count - 1)) ** 0.5 if count > 1 else 1.0

    def of_seeds(self, drawn: Array) -> Array:
        """(B + …, ...) → (...) the square of half a 95 % interval over other seeds: t² by s² / S, less what samples do
        to single seeds, which is in s² too. 0 for one seed, whose interval is of test samples only."""
        if self.seeds == 1:
            return np.zeros(drawn.shape[1:])
        single, own = np.split(drawn[self.replicates :].astype(np.float64), [self.singles])
        by_seed = single.reshape(-1, self.seeds, *single.shape[1:])
        of_one, of_all = variance(by_seed).mean(0), variance(drawn[: self.replicates])
        of_mean, single = variance(own) / self.seeds, (of_one - of_all) / (self.seeds - 1)
        return np.asarray(student(self.seeds) ** 2 * of_other_seeds(of_mean, single, self.seeds))

    def widened(self, value: Array, drawn: Array) -> Array:
        """value (...), drawn (B + …, ...) → (B, ...) replicates, as far from the value as other seeds take them."""
        drawn, more = drawn[: self.replicates].astype(np.float64), self.of_seeds(drawn)
        width = Z**2 * variance(drawn)
        return np.asarray(value + (drawn - value) * np.sqrt(self.narrow**2 + more / np.where(width > 0, width, np.inf)))


def of_other_seeds(of_mean: Array, of_samples: Array, seeds: int) -> Array:
    """The variance that other seeds give a mean over seeds, from s² / S and what samples of single seeds add to it. Of
    two seeds nothing is subtracted: one degree of freedom cannot separate them."""
    return np.maximum(0.0, of_mean - (np.maximum(0.0, of_samples) if seeds > 2 else 0.0))


def half_width_of(of_samples: Array, clusters: Array, of_seeds: Array, seeds: int) -> Array:
    """Half a 95 % interval of a mean over seeds, from the variances that other samples, of so many clusters, and other
    seeds give it."""
    of_both = student(clusters) ** 2 * of_samples + (student(seeds) ** 2 * of_seeds if seeds > 1 else 0.0)
    return np.asarray(np.sqrt(of_both))


def student(count: Any) -> Any:
    """The quantile of Student's t for a 95 % interval of a mean over so many."""
    from scipy.special import stdtrit

    return stdtrit(np.maximum(count, 2) - 1.0, (1 + LEVEL) / 2)


def variance(values: Array) -> Array:
    """The variance over the first axis without NaN, of a sample; 0 of fewer than two."""
    present = np.isfinite(values)
    count = present.sum(0)
    filled = np.where(present, values, 0.0)
    apart = np.where(present, filled - filled.sum(0) / np.maximum(count, 1), 0.0)
    return np.asarray((apart**2).sum(0) / np.maximum(count - 1, 1))


def band(value: Array, drawn: Array, layout: Layout | None = None) -> Band:
    """value (...), drawn (B + …, ...) → 95 % intervals; NaN where a value is not known. Percentiles over test samples;
    what other seeds add to a side is added as variances are. layout: None for plain replicates (B, ...)."""
    value = np.asarray(value, np.float64)
    low, high = quantiles(drawn[: layout and layout.replicates], ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    if layout is not None:
        more, wide = layout.of_seeds(drawn), layout.narrow
        low, high = (value + side * np.sqrt((wide * (end - value)) ** 2 + more) for side, end in ((-1, low), (1, high)))
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


def share(part: Array, whole: Array) -> Array:
    """part / whole; NaN of nothing."""
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1), np.nan)


def mean(values: Array, axis: int) -> Array:
    """The mean without NaN; NaN of nothing."""
    finite = ~np.isnan(values)
    count = finite.sum(axis)
    return np.asarray(np.where(count, np.where(finite, values, 0).sum(axis) / np.maximum(count, 1), np.nan))
