"""How accuracy falls with the age of a model: by lag, as a slope, as a half-life, and on the same tests. R: (..., T, T)
accuracies."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from driftline.eval.scoring.bands import Array, Band, Floats, Layout, band, mean, quantiles


@dataclass(frozen=True)
class HalfLife:
    """Time from a model's first test until half of its accuracy above chance, or a stated loss, is gone."""

    value: float
    """in the timeline's unit; infinity: not reached in the time that was tested; NaN: see `why`"""
    low: float
    """end of the 95 % interval"""
    high: float
    """infinity: not reached in a part of the replicates"""
    reached: float
    """share of the replicates in which it is reached"""
    tested: float
    """the longest time that was tested"""
    why: Literal["", "never above chance", "no later tests"] = ""
    """why there is none"""


def by_lag(r: Array, lags: npt.NDArray[np.int64], fresh: int, twins: bool = True) -> Array:
    """(..., K) accuracy at each lag as on the average test: the mean of the models at lag `fresh` on all their tests,
    and what models at the lag differ from those on the same tests. Steps differ in how hard they are, and each lag has
    other ones: means of all tests at a lag would take hard last steps for age. twins: False where no model is fresh on
    the tests of some lag, as of a learner that never learns again: what the same models differ from their first tests.
    """
    at = columns_of if twins else rows_of
    own = np.full((*r.shape[:-2], r.shape[-1]), np.nan, r.dtype)  # (..., T) on each test, or of each model
    own[..., at(fresh)] = np.diagonal(r, fresh, -2, -1)
    changes = [mean(np.diagonal(r, k, -2, -1) - own[..., at(k)], -1) for k in lags.tolist()]
    return np.asarray(mean(own, -1)[..., None] + np.stack(changes, -1))


def columns_of(lag: int) -> slice:
    """The tested steps of a lag's pairs, in the order of `np.diagonal`."""
    return slice(lag, None) if lag >= 0 else slice(None, lag)


def rows_of(lag: int) -> slice:
    """Their models."""
    return slice(-lag, None) if lag < 0 else slice(None, -lag or None)


def slope(r: Array, ages: Floats, base: int) -> Array:
    """(...) change per unit of time: least squares over tests at lags from `base` on, with an own level for each model;
    NaN if no model has two."""
    later = (np.arange(len(ages))[None, :] - np.arange(len(ages))[:, None]) >= base
    present = later & ~np.isnan(r)
    patterns = present.reshape(-1, *present.shape[-2:])
    if len(patterns) and bool((patterns == patterns[0]).all()):
        present = patterns[0]  # replicates lack the same tests
    age = np.where(present, ages, 0)
    age = np.where(present, age - age.sum(-1, keepdims=True) / np.maximum(present.sum(-1, keepdims=True), 1), 0)
    spread = (age**2).sum((-2, -1))
    # Ages are centred, so that levels of models cancel.
    covered = r[..., present] @ age[present] if present.ndim == 2 else (age * np.where(present, r, 0)).sum((-2, -1))
    return np.asarray(np.where(spread > 0, covered / np.where(spread > 0, spread, 1), np.nan))


def left_over(r: Array, chance: Array, lags: npt.NDArray[np.int64]) -> Array:
    """(..., K) share of its accuracy above chance that a model still has at each lag: a ratio of sums over the models
    that are tested there. lags: from the base lag on. chance: (..., T, T), or what takes its shape."""
    base = int(lags[0])
    above = r - chance
    shares = []
    for k in lags.tolist():
        size = r.shape[-1] - k
        now, first = np.diagonal(above, k, -2, -1), np.diagonal(above, base, -2, -1)[..., :size]
        both = ~np.isnan(now) & ~np.isnan(first)
        start = np.where(both, first, 0).sum(-1)
        shares.append(np.where(start > 0, np.where(both, now, 0).sum(-1) / np.where(start > 0, start, 1), np.nan))
    return np.stack(shares, -1)


def lost(r: Array, lags: npt.NDArray[np.int64]) -> Array:
    """(..., K) mean fall of the same models' accuracy since the base lag, the first of `lags`."""
    base, size = int(lags[0]), r.shape[-1]
    falls = [np.diagonal(r, base, -2, -1)[..., : size - k] - np.diagonal(r, k, -2, -1) for k in lags.tolist()]
    return np.stack([mean(fall, -1) for fall in falls], -1)


def first_below(values: Array, level: float, ages: Floats) -> Array:
    """(...) age at which values (..., K) first fall to `level`, linear between ages; infinity: never; NaN: values are
    not known. A value that is not known is skipped."""
    out = np.full(values.shape[:-1], np.inf)
    last_value, last_age = values[..., 0].astype(np.float64), np.full(values.shape[:-1], ages[0])
    out[np.asarray(last_value <= level)] = ages[0]
    for k in range(1, values.shape[-1]):
        value = values[..., k]
        crosses = np.isinf(out) & (value <= level)
        steep = np.where(crosses, last_value - value, 1)
        out = np.where(crosses, last_age + (ages[k] - last_age) * (last_value - level) / steep, out)
        present = ~np.isnan(value)
        last_value, last_age = np.where(present, value, last_value), np.where(present, ages[k], last_age)
    return np.where(np.isnan(values[..., 0]), np.nan, out)


def half_lives(
    r: Array, drawn: Array, chance: tuple[Array, Array], ages: Floats, lags: npt.NDArray[np.int64],
    loss: float | None, layout: Layout | None = None,
) -> list[HalfLife]:  # fmt: skip
    """r (M, T, T), drawn (B + …, M, T, T), chance of both, ages (K,) and lags (K,) from the base lag on → M half-lives,
    or times to a loss."""
    if len(lags) < 2:
        return [HalfLife(math.nan, math.nan, math.nan, 0.0, 0.0, "no later tests")] * len(r)
    since = ages - ages[0]
    of = [
        left_over(*one, lags) if loss is None else -lost(one[0], lags) for one in zip((r, drawn), chance, strict=True)
    ]
    if layout is not None:
        of[1] = layout.widened(*of)
    values, times = (first_below(one, 0.5 if loss is None else -loss, since) for one in of)
    present, reached = (~np.isnan(times)).sum(0), np.isfinite(times).sum(0)
    low, high = quantiles(times, (0.025, 0.975))
    tested = _tested_later(r, lags)
    return [
        HalfLife(math.nan, math.nan, math.nan, 0.0, 0.0, "no later tests")
        if not tested[m]
        else HalfLife(math.nan, math.nan, math.nan, 0.0, float(since[-1]), "never above chance")
        if np.isnan(values[m]) or present[m] < len(times) / 2
        else HalfLife(float(values[m]), float(low[m]), float(high[m]), float(reached[m] / present[m]), float(since[-1]))
        for m in range(len(r))
    ]


def _tested_later(r: Array, lags: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """r (M, T, T) → (M,) whether a model has a test at the base lag, the first of `lags`, and at a later one: a class
    may have neither."""
    there, base = ~np.isnan(r), int(lags[0])
    first = np.diagonal(there, base, -2, -1)
    pairs = [np.diagonal(there, k, -2, -1) for k in lags[1:].tolist()]
    return np.any([(later & first[..., : later.shape[-1]]).any(-1) for later in pairs], axis=0)


@dataclass(frozen=True)
class Curve:
    """Of one learner. A ages from the youngest on, C classes."""

    age: Floats
    """(A,) mean time from training to test, in the timeline's unit"""
    youngest: Floats
    """(A,) the shortest of these times"""
    oldest: Floats
    """(A,) the longest of these times"""
    tested: npt.NDArray[np.int64]
    """(J,) steps that were tested by models of all these ages: each point is a mean over them"""
    models: int
    """0, or if no step was (a learner that never learns again has one model): each point is a mean over so many models
    that were tested at all these ages, on later tests at a greater age"""
    accuracy: Band
    """(A,)"""
    accuracy_of: Band
    """(C, A) the same for each class, over those of the tests that have samples of it"""
    loss: Band
    """() points (0 … 1) that a model loses per unit of age to fresh models on the same tests: least squares over all
    pairs, with an own level for each test; NaN if no test has models of two ages"""
    pairs: int
    """of an older and a fresh model on the same test"""


def ages_shown(pairs: npt.NDArray[np.int64]) -> int:
    """How many ages, from the youngest on, are on the curve: to the oldest one that at least half as many tests have as
    the youngest; all if no other has.

    >>> ages_shown(np.array([5, 4, 3, 1])), ages_shown(np.array([5, 1])), ages_shown(np.array([], np.int64))
    (3, 2, 0)
    """
    enough = np.flatnonzero(2 * pairs >= pairs[:1])
    return int(enough[-1]) + 1 if len(enough) > 1 else len(pairs)


def placed(r: Array, lags: npt.NDArray[np.int64], of_tests: bool = True) -> Array:
    """r (..., T, T) accuracies → (..., J, A): on each test, of the models that were trained A `lags` before; or of each
    model, on the tests so much later. NaN in all places of a test (a model) that lacks one. J: those that can have all
    lags."""
    reach = int(lags.max(initial=0))
    own = np.arange(reach if of_tests else 0, r.shape[-1] - (0 if of_tests else reach))[:, None]
    values = r[..., own - lags, own] if of_tests else r[..., own, own + lags]
    return np.where(np.isnan(values).any(-1, keepdims=True), np.nan, values)


def loss(r: Array, ages: Floats, base: int) -> Array:
    """r (..., T, T), ages (T, T) → (...) accuracy lost per unit of age, with an own level for each test: `slope` with
    the parts of models and tests exchanged. base: the lag of fresh models."""
    turned, of_age = (np.swapaxes(one[..., ::-1, ::-1], -1, -2) for one in (r, ages))
    return -slope(turned, of_age, base)


def curves(
    r: Array, drawn: Array, r_of: Array, drawn_of: Array, ages: Floats, lags: npt.NDArray[np.int64],
    pairs: npt.NDArray[np.int64], layout: Layout,
) -> list[Curve]:  # fmt: skip
    """r (L, T, T), drawn (B, L, T, T), of classes r_of (L, C, T, T) and drawn_of (B, L, C, T, T), ages (T, T), lags and
    pairs (K,) from the base lag on → L curves."""
    shown = lags[: ages_shown(pairs)]
    times = np.where(np.isnan(r[0]), np.nan, ages)
    by_test = bool((~np.isnan(placed(times, shown))).all(-1).any())
    accuracy, accuracy_of = (
        band(mean(placed(exact, shown, by_test), -2), mean(placed(draws, shown, by_test), -2), layout)
        for exact, draws in ((r, drawn), (r_of, drawn_of))
    )
    base = int(lags[0]) if len(lags) else r.shape[-1]
    losses = band(loss(r, ages, base), loss(drawn, ages, base), layout)
    times = placed(times, shown, by_test)
    whole = np.flatnonzero(~np.isnan(times).any(-1))
    times = times[whole] if len(whole) else np.full((1, len(shown)), np.nan)
    tested = int(shown.max(initial=0)) + whole if by_test else whole[:0]
    return [
        Curve(
            age=times.mean(0),
            youngest=times.min(0),
            oldest=times.max(0),
            tested=tested,
            models=0 if by_test else len(whole),
            accuracy=accuracy[k].of_share(),
            accuracy_of=accuracy_of[k].of_share(),
            loss=losses[k],
            pairs=int(pairs[1:].sum()),
        )
        for k in range(len(r))
    ]
