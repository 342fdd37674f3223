"""How fast versions of a model lose accuracy: slope and half-life, from cells.

A cell is one version in one period. Levels of versions are their own; the loss by age is one for all. Cells scatter
more than their labels say, since periods differ: the variance between periods is estimated beside that of labels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.eval.scoring.bands import Floats, Z, quantiles, student
from driftline.eval.scoring.decay import first_below
from driftline.eval.service_log.cells import Cells

Ints = npt.NDArray[np.int64]
REPLICATES = 1_000
FREE = 3  # degrees of freedom below which nothing is forecast
EMPTY = 1e-9  # squares of a column that levels explain
STEPS = 60  # of the search for the variance between cells


@dataclass(frozen=True)
class Line:
    """Generalised least squares of K cells with an own level for each version. Cells of one period share what is
    special to it."""

    slope: float
    """change of accuracy per period; NaN: no version has two ages"""
    low: float
    high: float
    places: dict[int, int]
    """version → place of its level among the coefficients; the slope is the last"""
    coefficients: Floats
    """(V + 1,)"""
    covariance: Floats
    """(V + 1, V + 1) of them"""
    variance: float
    """of a cell of average size about the line"""
    free: int
    """degrees of freedom"""
    between: float
    """variance of periods, beside that of labels"""
    scatter: Floats
    """(K,) variance of each cell by its labels and its period, as the rests have it"""
    loss: float
    """weighted sum of squares of the rests"""

    def at(self, version: int, lag: float) -> tuple[float, float, float]:
        """Accuracy of a version at an age, its variance, and the variance of cells of average size about it."""
        x = np.zeros(len(self.coefficients))
        x[self.places[version]], x[-1] = 1, lag
        return float(x @ self.coefficients), float(x @ self.covariance @ x), self.variance


def line(version: Ints, period: Ints, lag: Ints, accuracy: Floats, effective: Floats) -> Line:
    """Of K cells with numbers: version, period, lag, accuracy and number of independent labels."""
    of_labels = _of_labels(accuracy, effective)
    names, place = np.unique(version, return_inverse=True)
    design = np.concatenate([np.eye(len(names))[place], lag[:, None]], 1).astype(np.float64)
    ages = bool((np.bincount(place, lag**2) * np.bincount(place) > np.bincount(place, lag) ** 2).any())
    design = design if ages else design[:, :-1]
    free = len(accuracy) - design.shape[1]
    period = np.unique(period, return_inverse=True)[1]
    between = _between(design, period, accuracy, of_labels, free)
    if between > 0:  # cells of one period say the same about it
        free = max(min(free, int(period.max()) + 1 - design.shape[1]), min(free, 1))
    size = float((between + of_labels).mean())
    fitted, inverse, loss = _solved(design, period, accuracy, of_labels / size, between / size)
    variance = loss / (len(accuracy) - design.shape[1]) if free > 0 else math.nan
    if free > 0 and accuracy.mean() in (0, 1):  # cells without one mistake are alike, not certain
        variance = size
    covariance = inverse * variance
    if not ages:
        fitted, covariance = np.append(fitted, math.nan), np.full((len(names) + 1,) * 2, math.nan)
    half = float(student(free + 1)) * math.sqrt(covariance[-1, -1]) if free > 0 and ages else math.nan
    slope, scatter = float(fitted[-1]), (of_labels + between) / size * variance
    places = {int(name): k for k, name in enumerate(names)}
    return Line(slope, slope - half, slope + half, places, fitted, covariance, variance, free, between, scatter, loss)


@dataclass(frozen=True)
class Fading:
    """The same cells with a fall that slows down: c + A exp(−rate · age), an own A for each version."""

    chance: float
    """c: what is left at last"""
    line: Line
    """its coefficients are A and the rate; `loss` is of this shape"""

    def at(self, version: int, lag: float) -> tuple[float, float, float]:
        """As `Line.at`."""
        fit = self.line
        x = self.design(np.array([version]), np.array([lag]))[0]
        level, rate = (float(fit.coefficients[k]) for k in (fit.places[version], -1))
        return self.chance + level * math.exp(-rate * lag), float(x @ fit.covariance @ x), fit.variance

    def design(self, version: Ints, lag: npt.NDArray[Any]) -> Floats:
        """(K, V + 1) change of the accuracy of versions (K,) at ages (K,) with each coefficient."""
        place = np.array([self.line.places[v] for v in version.tolist()])
        return _bent(place, lag, self.line.coefficients[:-1], float(self.line.coefficients[-1]))


def _bent(place: Ints, lag: npt.NDArray[Any], levels: Floats, rate: float) -> Floats:
    out = np.zeros((len(lag), len(levels) + 1))
    left = np.exp(-rate * lag)
    out[np.arange(len(lag)), place], out[:, -1] = left, -levels[place] * lag * left
    return out


def fading(cells: Cells, fit: Line) -> Fading | None:
    """By Gauss–Newton, with the variances of the line; None where nothing falls, or all is gone."""
    use = cells.usable
    version, lag = cells.version[use], cells.lag[use]
    accuracy, n = cells.accuracy[use], cells.effective[use]
    chance = cells.chance
    period = np.unique(cells.period[use], return_inverse=True)[1]
    place = np.array([fit.places[v] for v in version.tolist()])
    if not fit.slope < 0 or not (fit.coefficients[:-1] > chance).all():
        return None
    of_labels = _of_labels(accuracy, n)
    size = float((of_labels + fit.between).mean())  # as in `line`: a cell of average size has the variance 1
    of_labels, between = of_labels / size, fit.between / size
    levels = fit.coefficients[:-1] - chance
    rate = -fit.slope / float(levels.mean())
    inverse, loss = np.zeros((0, 0)), math.inf
    for _ in range(STEPS):
        design = _bent(place, lag, levels, rate)
        rest = accuracy - chance - levels[place] * np.exp(-rate * lag)
        change, inverse, _ = _solved(design, period, rest, of_labels, between)
        loss = _solved(design[:, :0], period, rest, of_labels, between)[2]
        levels, rate = levels + change[:-1], rate + float(change[-1])
        if not (levels > 0).all() or not 0 < rate < 1:
            return None
        if np.abs(change).max() < EMPTY:
            break
    coefficients = np.append(levels, rate)
    variance = loss / max(len(lag) - len(coefficients), 1)
    return Fading(
        chance, replace(fit, coefficients=coefficients, covariance=inverse * variance, variance=variance, loss=loss)
    )


def _of_labels(accuracy: Floats, effective: Floats) -> Floats:
    """(K,) variance of cells by their labels; one share for all, because a cell without mistakes is not certain."""
    mean = float(np.average(accuracy, weights=effective))
    return np.asarray(max(mean * (1 - mean), 1e-4) / effective)


def _solved(
    design: Floats, period: Ints, accuracy: Floats, of_labels: Floats, between: float
) -> tuple[Floats, Floats, float]:
    """Coefficients, the inverse of the normal matrix, and the weighted squares of the rests, where cells have the
    variance `of_labels` each and those of one period `between` in common."""
    inside = np.concatenate([design, accuracy[:, None]], 1)
    scaled = inside / of_labels[:, None]
    sums = np.zeros((int(period.max()) + 1, inside.shape[1]))
    np.add.at(sums, period, scaled)
    share = between / (1 + between * np.bincount(period, 1 / of_labels))
    products = inside.T @ scaled - sums.T @ (sums * share[:, None])  # Sherman–Morrison in each period
    normal, right = products[:-1, :-1], products[:-1, -1]
    inverse = np.asarray(np.linalg.pinv(normal, hermitian=True), np.float64)
    fitted = inverse @ right
    return fitted, inverse, max(float(products[-1, -1] - right @ fitted), 0.0)


def _between(design: Floats, period: Ints, accuracy: Floats, of_labels: Floats, free: int) -> float:
    """Variance between periods beyond that of labels, so that the weighted squares of the rests are as many as the
    degrees of freedom [Paule & Mandel 1982]; 0 if labels explain them all, or if no difference of periods does."""

    def excess(between: float) -> float:
        return _solved(design, period, accuracy, of_labels, between)[2] - free

    low, high = 0.0, 1.0
    if free < 1 or excess(low) <= 0 or excess(high) > 0:
        return 0.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return high


@dataclass(frozen=True)
class Decay:
    """Of the versions that were tested at the youngest age. A lags from that one on."""

    lags: Ints
    """(A,)"""
    accuracy: Floats
    """(A,) mean of versions when young, and the mean change of those that were tested at both ages"""
    low: Floats
    high: Floats
    retained: Floats
    """(A,) share of the accuracy above chance that is left"""
    half_life: float
    """lags until half of it is left, by the curve that only falls; infinity: not reached; NaN: never above chance, or
    no second age"""
    half_life_low: float
    half_life_high: float
    versions: Ints
    """(A,) how many"""


def decay(cells: Cells, fit: Line, rng: np.random.Generator) -> Decay:
    """Replicates draw each cell again, with the scatter of labels and of periods."""
    use = cells.usable
    r, n = (_placed(cells, use, values) for values in (cells.accuracy, cells.effective))
    lags = np.flatnonzero((~np.isnan(r)).any(0))
    drawn = np.stack([_placed(cells, use, _put(use, values)) for values in _drawn(cells, fit, rng)])
    values, count = _by_age(r[None], lags)
    draws, _ = _by_age(drawn, lags)
    left, lefts = (_left(one, cells.chance, lags) for one in (r[None], drawn))
    low, high = quantiles(draws, (0.025, 0.975))
    worth = count**2 / np.maximum(np.where(_both(r, lags), 1 / n[:, lags], 0).sum(0), EMPTY)
    since = (lags - lags[0]).astype(np.float64)
    half, times = (_half_life(one, worth, since) for one in (left, lefts))
    ends = quantiles(times, (0.025, 0.975))
    return Decay(
        lags, values[0], np.clip(low, 0, 1), np.clip(high, 0, 1), left[0],
        float(half[0]), float(ends[0]), float(ends[1]), count,
    )  # fmt: skip


def _half_life(left: Floats, worth: Floats, since: Floats) -> Floats:
    """(B,) lags until half is left, of shares (B, A) of so many labels (A,), by the nearest curve that only falls
    (isotonic): the first of many small cells that is low by chance ends nothing."""
    from scipy.optimize import isotonic_regression

    there = np.isfinite(left[0])
    if there.sum() < 2 or not there[0]:
        return np.full(len(left), math.nan)
    out = np.full(len(left), math.nan)
    for k in np.flatnonzero(np.isfinite(left[:, there]).all(1)).tolist():
        falls = isotonic_regression(left[k, there], weights=worth[there], increasing=False).x
        out[k] = first_below(falls / falls[0], 0.5, since[there])
    return out


def _drawn(cells: Cells, fit: Line, rng: np.random.Generator) -> Floats:
    """(B, K) accuracies of the usable cells as other labels and other periods would have them. What is special to
    periods is what a curve leaves: an own level of each age where versions share ages, else a fall that slows down if
    it fits better than the line. A curve that bends is no scatter."""
    use = cells.usable
    p, n = cells.accuracy[use], cells.effective[use]
    of_labels = np.maximum(p * (1 - p), 1 / (n + 4)) / n
    period = np.unique(cells.period[use], return_inverse=True)[1]
    ages = [np.unique(of[use], return_inverse=True)[1] for of in (cells.version, cells.lag)]
    design = np.concatenate([np.eye(int(of.max(initial=0)) + 1)[of] for of in ages], 1)
    free = len(p) - int(np.linalg.matrix_rank(design)) if len(p) else 0
    between, more, above = fit.between, 1.0, p - cells.chance
    if free < FREE and (bent := fading(cells, fit)) is not None and bent.line.loss < fit.loss:
        design, free = bent.design(cells.version[use], cells.lag[use]), len(p) - len(fit.coefficients)
    if free >= FREE:
        between = _between(design, period, above, _of_labels(p, n), free)
        more = max(_solved(design, period, above, _of_labels(p, n), between)[2] / free, 1.0)
    wide = float(student((free if free >= FREE else fit.free) + 1)) / Z if fit.free > 0 else 1.0
    shared = rng.standard_normal((REPLICATES, int(period.max(initial=0)) + 1))[:, period] * math.sqrt(between) * wide
    return p + shared + rng.standard_normal((REPLICATES, len(p))) * np.sqrt(of_labels * more)


def _put(use: npt.NDArray[np.bool_], values: Floats) -> Floats:
    out = np.full(len(use), np.nan)
    out[use] = values
    return out


def _placed(cells: Cells, use: npt.NDArray[np.bool_], values: Floats) -> Floats:
    """(V, L) values of the usable cells by version and lag; NaN: none."""
    lags = int(cells.lag[use].max(initial=0)) + 1
    out = np.full((int(cells.version.max()) + 1, lags), np.nan)
    out[cells.version[use], cells.lag[use]] = values[use]
    return out


def _by_age(r: Floats, lags: Ints) -> tuple[Floats, Ints]:
    """r (B, V, L) → (B, A) accuracy by age, (A,) number of versions."""
    own, both = r[:, :, lags[0]], _both(r[0], lags)
    change = np.where(both, r[:, :, lags] - own[:, :, None], 0).sum(1) / np.where(both.any(0), both.sum(0), np.nan)
    return np.nanmean(own, 1)[:, None] + change, both.sum(0)


def _both(r: Floats, lags: Ints) -> npt.NDArray[np.bool_]:
    """r (V, L) → (V, A) whether a version was tested at an age and at the youngest of all."""
    there = ~np.isnan(r[:, lags])
    return there & there[:, :1]


def _left(r: Floats, chance: float, lags: Ints) -> Floats:
    """r (B, V, L) → (B, A) share above chance that versions have left: a ratio of sums."""
    above, both = (r - chance)[:, :, lags], _both(r[0], lags)
    now, first = (np.where(both, one, 0).sum(1) for one in (above, above[:, :, :1]))
    return np.where(first > 0, now / np.where(first > 0, first, 1), np.nan)
