"""Estimates with their intervals, and p of many tests."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.late import special

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Parts = Sequence[tuple[float, float]]
LEVEL = 0.95
MANY = 999_999.0  # degrees of freedom of what is certain
Z = 1.959964  # of a normal distribution
EQUAL = 1e-12  # rounding
BEYOND = 1.5  # times a value, up to which its variance is linear: further on, a small value would have no upper end


@dataclass(frozen=True)
class Band:
    """Estimates, each with the ends of its 95 % interval; NaN: not known."""

    value: Floats
    low: Floats
    high: Floats

    @classmethod
    def around(cls, value: Any, half: Any) -> "Band":
        """Symmetric intervals; half of each."""
        return cls(np.asarray(value), np.asarray(value - half), np.asarray(value + half))

    @classmethod
    def stacked(cls, bands: "Sequence[Band]") -> "Band":
        """Those of several, one after the other on a new first axis."""
        return cls(*(np.stack([getattr(one, end) for one in bands]) for end in ("value", "low", "high")))

    def __getitem__(self, at: int) -> "Band":
        """That of one place of the first axis."""
        return Band(self.value[at], self.low[at], self.high[at])

    def of_share(self) -> "Band":
        """With ends within 0 and 1, as shares are: an interval from a spread may go beyond."""
        return Band(self.value, np.clip(self.low, 0, 1), np.clip(self.high, 0, 1))


def student(count: Any) -> Any:
    """The quantile of Student's t for a 95 % interval of a mean over so many: degrees of freedom and 1."""
    return special.stdtrit(np.maximum(count, 2) - 1.0, (1 + LEVEL) / 2)


def wilson(share: Floats, n: Floats, clusters: Floats | None = None) -> tuple[Floats, Floats]:
    """Ends (K,) of Wilson's 95 % interval of shares (K,) of n (K,); NaN of nothing. clusters (K,): their number widens
    the interval as Student's t does.

    >>> [round(float(end), 4) for end in wilson(np.array(0.78), np.array(1000.0))]
    [0.7533, 0.8046]
    """
    z = np.full(np.shape(share), Z) if clusters is None else np.where(np.isfinite(clusters), student(clusters), Z)
    with np.errstate(invalid="ignore", divide="ignore"):
        size = z**2 / n
        centre = (share + size / 2) / (1 + size)
        half = z / (1 + size) * np.sqrt(share * (1 - share) / n + size / (4 * n))
    return np.maximum(centre - half, 0), np.minimum(centre + half, 1)


def p_of(far: Array, by_seeds: Any, clusters: Any, seeds: int) -> Array:
    """Two-sided p of so many standard errors. by_seeds: share of the variance that seeds make, judged with S − 1
    degrees of freedom, as it is often seen far too small; the rest with clusters − 1. (Of tables of 20 equal learners
    with 3 seeds at most 3 % name a difference; by Welch–Satterthwaite 62 %.)"""
    tails = [special.stdtr(np.maximum(np.asarray(count) - 1, 1), -far) for count in (clusters, seeds)]
    return np.asarray(2 * ((1 - by_seeds) * tails[0] + by_seeds * tails[1]))


def half_of(variance: Array, by_seeds: Array, clusters: Any, seeds: int) -> Array:
    """Half of the 95 % interval of what has a `p_of` above 5 %."""
    far = np.zeros(np.shape(by_seeds))
    for count in np.unique(clusters).tolist():
        far = np.where(np.equal(clusters, count), np.interp(by_seeds, *_reach(count, seeds)), far)
    return np.asarray(far * np.sqrt(variance))


@lru_cache(2048)
def _reach(clusters: int, seeds: int) -> tuple[Array, Array]:
    """Shares that seeds make, from 0 to 1, and the standard errors of which `p_of` is 5 %."""
    far = np.linspace(student(clusters), student(seeds), 1001)
    low, high = p_of(far, np.array([[0.0], [1.0]]), clusters, seeds)
    return np.where(low == high, np.linspace(0, 1, 1001), (1 - LEVEL - low) / np.where(low == high, 1, high - low)), far


def freedom_of(variance: float, parts: Parts) -> float:
    """Degrees of freedom of a variance that is a sum of parts, each with its own [Welch 1947].

    >>> freedom_of(2.0, [(1.0, 4), (1.0, 4)])
    8.0
    """
    below = sum(part**2 / free for part, free in parts if free > 0)
    return min(max(variance**2 / below, 1.0), MANY) if below > 0 else MANY


def interval(
    value: float, parts: Parts, variance: float | None = None, at: tuple[Parts, float] | None = None
) -> tuple[Band, float]:
    """A value and its variance (None: the sum of its parts, which have degrees of freedom) → its 95 % interval and the
    p of 0, by Student's t with Welch–Satterthwaite degrees of freedom. at: parts and variance where the truth is the
    value, if it is greater there than at 0, and linear in the truth up to `BEYOND` of it: the interval holds each truth
    that the value does not contradict, as Wilson's does."""
    variance = sum(part for part, _ in parts) if variance is None else variance
    free = freedom_of(variance, parts)
    p = 2 * float(special.stdtr(free, -abs(value) / np.sqrt(variance))) if variance > 0 else float(value == 0)
    square = variance * float(student(free + 1)) ** 2
    more = 0.0
    if at is not None and value > -np.sqrt(square):
        more = max(0.0, at[1] * float(student(freedom_of(at[1], at[0]) + 1)) ** 2 - square)
    middle = value + more / max(value, EQUAL) / 2
    half = np.sqrt(middle**2 - value**2 + square)
    low = middle - half if value > np.sqrt(square) else value - np.sqrt(square)
    high = min(middle + half, value + np.sqrt(square + BEYOND * more))
    return Band(np.array(value), np.array(low), np.array(high)), p


def deviations(values: Array) -> Array:
    """Those from the mean over the first axis; the sum of their squares is the variance of a sample. 0 for NaN."""
    values = np.asarray(values, np.float64)
    present = np.isfinite(values)
    count = present.sum(0)
    filled = np.where(present, values, 0.0)
    apart = np.where(present, filled - filled.sum(0) / np.maximum(count, 1), 0.0)
    return np.asarray(apart / np.sqrt(np.maximum(count - 1, 1)))


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


def half_width(values: Sequence[float | None]) -> float | None:
    """Half the width of the 95 % t interval of the mean over seeds; None for one seed, for seeds that change nothing,
    and where a seed has no value.

    >>> round(half_width([0.90, 0.92, 0.94]), 4)
    0.0497
    """
    numbers = [value for value in values if value is not None]
    if len(numbers) < max(2, len(values)) or np.ptp(numbers) <= EQUAL:
        return None
    return float(student(len(values))) * float(np.std(numbers, ddof=1)) / float(np.sqrt(len(values)))


def holm(p: Floats) -> Floats:
    """(K,) p → p after Holm over those that are known; NaN stays [Holm 1979].

    >>> holm(np.array([0.04, np.nan, 0.01])).tolist()
    [0.04, nan, 0.02]
    """
    out, order = np.full(p.shape, np.nan), np.argsort(p, kind="stable")[: int((~np.isnan(p)).sum())]
    out[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)))
    return out
