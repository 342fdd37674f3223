"""How accuracy falls with the age of a model on the same tests: a curve whose points share their tests, and a loss per
unit of time. Steps differ in how hard they are, so that means over other tests at each age would take hard tests for
age, or easy ones for rejuvenation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from driftline.eval.scoring.bands import Array, Band, Floats, band
from driftline.eval.scoring.decay import slope


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


def by_test(r: Array, lags: npt.NDArray[np.int64]) -> Array:
    """r (..., T, T) accuracies → (..., J, A) on each test j of models that were trained A `lags` before; NaN in all of
    a test's places if one of them was not tested. J: the tests that can have all lags."""
    steps = r.shape[-1]
    tested = np.arange(int(lags.max(initial=0)), steps)
    values = r[..., tested[:, None] - lags[None, :], tested[:, None]]
    return np.where(np.isnan(values).any(-1, keepdims=True), np.nan, values)


def on_shared_tests(r: Array, lags: npt.NDArray[np.int64]) -> Array:
    """r (..., T, T) → (..., A) mean accuracy at each lag over the tests that have a model at each of them; NaN if there
    is none."""
    values = by_test(r, lags)
    present = ~np.isnan(values)
    count = present.sum(-2)
    return np.asarray(np.where(count, np.where(present, values, 0).sum(-2) / np.maximum(count, 1), np.nan))


def loss(r: Array, ages: Floats, base: int) -> Array:
    """r (..., T, T), ages (T, T) → (...) accuracy lost per unit of age, with an own level for each test: `slope` with
    the parts of models and tests exchanged. base: the lag of fresh models."""
    turned, of_age = (np.swapaxes(one[..., ::-1, ::-1], -1, -2) for one in (r, ages))
    return -slope(turned, of_age, base)


def curves(
    r: Array, drawn: Array, r_of: Array, drawn_of: Array, ages: Floats, lags: npt.NDArray[np.int64],
    pairs: npt.NDArray[np.int64],
) -> list[Curve]:  # fmt: skip
    """r (L, T, T), drawn (B, L, T, T), of classes r_of (L, C, T, T) and drawn_of (B, L, C, T, T), ages (T, T), lags and
    pairs (K,) from the base lag on → L curves."""
    shown = lags[: ages_shown(pairs)]
    accuracy, accuracy_of = (
        band(on_shared_tests(one, shown), on_shared_tests(two, shown)) for one, two in ((r, drawn), (r_of, drawn_of))
    )
    base = int(lags[0]) if len(lags) else r.shape[-1]
    losses = band(loss(r, ages, base), loss(drawn, ages, base))
    of_tests = by_test(np.where(np.isnan(r[0]), np.nan, ages), shown)
    whole = ~np.isnan(of_tests).any(-1)
    shared = of_tests[whole]
    times = shared if len(shared) else np.full((1, len(shown)), np.nan)
    return [
        Curve(
            age=times.mean(0),
            youngest=times.min(0),
            oldest=times.max(0),
            tested=r.shape[-1] - len(of_tests) + np.flatnonzero(whole),
            accuracy=accuracy[k],
            accuracy_of=accuracy_of[k],
            loss=losses[k],
            pairs=int(pairs[1:].sum()),
        )
        for k in range(len(r))
    ]
