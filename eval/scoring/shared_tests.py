"""How accuracy falls with the age of a model on the same tests: a curve whose points share their tests, and a loss per
unit of time. Steps differ in how hard they are, so that means over other tests at each age would take hard tests for
age, or easy ones for rejuvenation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from driftline.eval.scoring.bands import Array, Band, Floats, band, mean
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
    pairs: npt.NDArray[np.int64],
) -> list[Curve]:  # fmt: skip
    """r (L, T, T), drawn (B, L, T, T), of classes r_of (L, C, T, T) and drawn_of (B, L, C, T, T), ages (T, T), lags and
    pairs (K,) from the base lag on → L curves."""
    shown = lags[: ages_shown(pairs)]
    times = np.where(np.isnan(r[0]), np.nan, ages)
    by_test = bool((~np.isnan(placed(times, shown))).all(-1).any())
    accuracy, accuracy_of = (
        band(mean(placed(one, shown, by_test), -2), mean(placed(two, shown, by_test), -2))
        for one, two in ((r, drawn), (r_of, drawn_of))
    )
    base = int(lags[0]) if len(lags) else r.shape[-1]
    losses = band(loss(r, ages, base), loss(drawn, ages, base))
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
            accuracy=accuracy[k],
            accuracy_of=accuracy_of[k],
            loss=losses[k],
            pairs=int(pairs[1:].sum()),
        )
        for k in range(len(r))
    ]
