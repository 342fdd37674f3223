"""How accuracy falls with the age of a model: as a slope, as a half-life, and on the same tests.

A test is of a model where it last changed: a model that learns nothing at later steps has no tests of its own there,
and goes on ageing (see `rows.new_models`). A lag is the tested step minus the trained one; the base lag is the smallest
one from 0 on that is tested: 1 where no step is tested after it was learned. r: (..., M) accuracies of tests, NaN: not
known.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from driftline.eval.protocol import stored_protocol
from driftline.eval.rows import Row, Run, new_models
from driftline.eval.scoring.bands import Array, Band, Floats, quantiles
from driftline.eval.scoring.sums import ENDS, Drawn, Draws, Sums, summed

FINEST = 64  # ages of a half-life; more are joined
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Pairs:
    """M tests in the order of their lags, and in each of their models; K lags."""

    model: Ints
    """(M,) step up to which the model was trained"""
    tested: Ints
    """(M,) step on whose samples it was tested"""
    age: Floats
    """(M,) time from training to test; below 0: tests on the past"""
    lags: Ints
    """(K,) rising; below 0: tests on the past"""
    starts: Ints
    """(K,) the first test of each lag"""
    base: int
    """position of the base lag in `lags`; K if there are only tests on the past"""
    twin: Ints
    """(M,) the test, on the same samples, of the model that was fresh; -1: there is none. A model is fresh at the base
    lag, or at the lag nearest to 0"""
    first: Ints
    """(M,) the same model's test when it was fresh; -1: there is none"""

    @property
    def later(self) -> slice:
        """The tests from the base lag on."""
        return slice(int(self.starts[self.base]) if self.base < len(self.lags) else len(self.model), None)

    @property
    def twins(self) -> bool:
        """Whether each lag from the base lag on has a test with a twin; not of a learner that never learned again."""
        return bool(self.totals(self.twin[self.later] >= 0, self.base).all())

    def totals(self, values: Array, start: int = 0) -> Array:
        """values (..., M - …) of the tests from the `start`-th lag on → (..., K - start) sums over those of each."""
        if start == len(self.lags):
            return np.zeros((*values.shape[:-1], 0))
        values = values.astype(np.float64) if values.dtype.kind == "b" else values
        return np.asarray(np.add.reduceat(values, self.starts[start:] - self.starts[start], axis=-1))

    def means(self, values: Array, start: int = 0) -> Array:
        """The same for means without NaN; NaN of nothing."""
        present = ~np.isnan(values)
        count = self.totals(present, start)
        total = self.totals(np.where(present, values, 0), start)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def at(values: Array, places: Ints) -> Array:
    """values (..., M) at some tests; NaN where there is none."""
    return np.where(places >= 0, values[..., places], np.nan)


def pairs_of(tests: Sequence[tuple[int, int]], times: Floats) -> Pairs:
    """The pairs among tests (trained, tested). times: (T,) of the steps."""
    order = sorted(tests, key=lambda test: (test[1] - test[0], test[0]))
    model, tested = (np.array([test[k] for test in order], np.int64) for k in (0, 1))
    lags, starts = np.unique(tested - model, return_index=True)
    base, place = int(np.searchsorted(lags, 0)), {test: m for m, test in enumerate(order)}
    fresh = int(lags[min(base, len(lags) - 1)])
    twin, first = (
        np.array([place.get(test, -1) for test in found], np.int64)
        for found in ([(j - fresh, j) for _, j in order], [(i, i + fresh) for i, _ in order])
    )
    return Pairs(model, tested, times[tested] - times[model], lags, starts, base, twin, first)


def sums(runs: Sequence[Run], draws: Draws, times: Floats) -> tuple[Pairs, Sums] | None:
    """Right answers and samples (M, C) of one learner's runs (seeds), by class. None if its protocol does not test
    models on steps, if it never learned, and for rows without predictions. times: (T,) of the steps."""
    kind = stored_protocol(runs[0].about["protocol"])
    tests = [new_models(run.rows, kind.roles.step) for run in runs]
    answers = [row.answers for test in tests for row in test.values()]
    if not answers or any(one is None for one in answers):
        return None
    pairs = pairs_of(list(dict.fromkeys(key for test in tests for key in test)), times)
    place = {key: m for m, key in enumerate(zip(pairs.model.tolist(), pairs.tested.tolist(), strict=True))}
    labels = {id(one.label): one.label for one in answers if one is not None}
    classes = 1 + max(int(label.max(initial=0)) for label in labels.values())

    @cache
    def cells(m: int, label: int) -> Ints:
        return np.asarray(m * classes + labels[label].astype(np.int64))

    parts = [
        [(a, cells(place[key], id(a.label))) for key, row in test.items() if (a := row.answers) is not None]
        for test in tests
    ]
    of = {place[key]: draws.group_of(row.answers.sample) for key, row in tests[0].items() if row.answers is not None}
    steps = {int(pairs.tested[m]): len(np.unique(groups)) for m, groups in of.items()}
    clusters = int(np.mean(list(steps.values())) * len(np.unique(pairs.model)))
    return pairs, summed(parts, (len(place), classes), draws, clusters)


def constants(runs: Sequence[Run]) -> dict[int, int]:
    """Step → the class that most training samples up to it have, with most of the seeds; without steps whose rows do
    not say it."""
    kind, classes_of = stored_protocol(runs[0].about["protocol"]), dict[int, list[int]]()
    for run in runs:
        of: dict[int, Row] = {i: row for (i, _), row in new_models(run.rows, kind.roles.step).items()}
        for i, row in of.items():
            classes_of.setdefault(i, []).extend([row.constant] if row.constant >= 0 else [])
    return {i: int(np.bincount(classes).argmax()) for i, classes in classes_of.items() if classes}


@dataclass(frozen=True)
class HalfLife:
    """Time from a model's first test until half of its accuracy above chance is gone, for what does not come back."""

    value: float
    """in the timeline's unit; infinity: not reached in the time that was tested; NaN: see `why`"""
    low: float
    """end of the 95 % interval; where the half-life is not reached, a bound: it is more than that"""
    high: float
    """infinity: not reached in a part of the replicates"""
    reached: float
    """share of the replicates in which it is reached"""
    tested: float
    """the longest time that was tested"""
    why: Literal["", "never above chance", "no later test periods", "comes back"] = ""
    """why there is none; "comes back": a model has more than half again at a greater age"""
    extrapolated: float = math.nan
    """where it is not reached: when half would be gone if the mean fall went on; NaN: reached, or no fall"""


def slope(r: Array, pairs: Pairs, level: Ints) -> Array:
    """(...) change per unit of time: least squares over the tests from the base lag on, with an own level for each
    value of `level` (M,), as of each model; NaN if none has two tests."""
    r, age = r[..., pairs.later], pairs.age[pairs.later]
    of = np.unique(level[pairs.later], return_inverse=True)[1]
    member = (of[:, None] == np.arange(of.max(initial=-1) + 1)).astype(np.float64)
    present = ~np.isnan(r)
    if present.size and bool((present == present.reshape(-1, present.shape[-1])[0]).all()):
        present = present.reshape(-1, present.shape[-1])[0]  # replicates lack the same tests
    mean = (present * age) @ member / np.maximum(present @ member, 1)
    age = np.where(present, age - mean[..., of], 0)  # centred, so that levels cancel
    spread = (age**2).sum(-1)
    covered = (age * np.where(np.isnan(r), 0, r)).sum(-1)
    return np.asarray(np.where(spread > 0, covered / np.where(spread > 0, spread, 1), np.nan))


def left_over(r: Array, chance: Array, pairs: Pairs) -> Array:
    """(..., K) share of its accuracy above chance that a model still has, at each lag from the base lag on: a ratio of
    sums over the models that are tested there. chance: (..., M), or what takes its shape."""
    above = r - chance
    now, first = above[..., pairs.later], at(above, pairs.first)[..., pairs.later]
    both = ~np.isnan(now) & ~np.isnan(first)
    now, first = (pairs.totals(np.where(both, one, 0), pairs.base) for one in (now, first))
    return np.where(first > 0, now / np.where(first > 0, first, 1), np.nan)


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


def falling(values: Array) -> Array:
    """(..., K) → the nearest values, by least squares, that never rise [Barlow et al. 1972]; NaN stays.

    >>> falling(np.array([1.0, 0.5, 0.7, 0.4]))
    array([1. , 0.6, 0.6, 0.4])
    """
    present = ~np.isnan(values)
    total, count = (
        np.concatenate([np.zeros((*values.shape[:-1], 1)), np.cumsum(one, -1)], -1)
        for one in (np.where(present, values, 0), present)
    )
    fitted = np.full(values.shape, np.inf)
    size = values.shape[-1]
    for i in range(size):  # the least, over starts, of the greatest mean from there to any end from k on
        number = count[..., i + 1 :] - count[..., i : i + 1]
        means = np.where(number > 0, (total[..., i + 1 :] - total[..., i : i + 1]) / np.maximum(number, 1), -np.inf)
        greatest = np.maximum.accumulate(means[..., ::-1], -1)[..., ::-1]
        fitted[..., i:] = np.minimum(fitted[..., i:], np.where(greatest > -np.inf, greatest, np.inf))
    return np.where(present, fitted, np.nan)


def half_life_of(left: Drawn, ages: Floats, later: bool) -> HalfLife:
    """left: (K,) as of `left_over`, ages (K,) from the base lag on, later: whether there are tests at two of them."""
    since, value, drawn = ages - ages[0] if len(ages) else ages, np.asarray(left.value, np.float64), left.widened()
    if len(since) > FINEST:
        starts = np.linspace(0, len(since), FINEST, endpoint=False).astype(np.int64)
        since = np.add.reduceat(since, starts) / np.diff([*starts, len(since)])
        value, drawn = (_joined(one, starts) for one in (value, drawn))
    if len(since) < 2 or not later:
        return HalfLife(math.nan, math.nan, math.nan, 0.0, 0.0, "no later test periods")
    tested, time = float(since[-1]), float(first_below(falling(value), 0.5, since))
    times = first_below(falling(drawn), 0.5, since)
    present, reached = int((~np.isnan(times)).sum()), int(np.isfinite(times).sum())
    if math.isnan(time) or present < len(times) / 2:
        return HalfLife(math.nan, math.nan, math.nan, 0.0, tested, "never above chance")
    half_gone = np.maximum.accumulate(np.nan_to_num(value, nan=np.inf) <= 0.5)
    if (half_gone & (quantiles(drawn, ENDS)[0] > 0.5)).any():  # beyond its interval
        return HalfLife(math.nan, math.nan, math.nan, 0.0, tested, "comes back")
    low, high = (float(end) for end in quantiles(times, ENDS))
    fall = float((since * np.nan_to_num(1 - value)).sum())
    spread = float((since**2 * ~np.isnan(value)).sum())
    going_on = 0.5 * spread / fall if math.isinf(time) and fall > 0 else math.nan
    return HalfLife(time, low, high, reached / present, tested, "", going_on)


def _joined(values: Array, starts: Ints) -> Array:
    """(..., K) → means of neighbours without NaN, from each of `starts` on."""
    present = ~np.isnan(values)
    count = np.add.reduceat(present.astype(np.float64), starts, -1)
    total = np.add.reduceat(np.where(present, values, 0), starts, -1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


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
    """(J,) steps that were tested by models of all these ages: each point is a mean over them; if no step was (a
    learner that never learns again has one model), over the models that were tested at all these ages"""
    accuracy: Band
    """(A,)"""
    accuracy_of: Band
    """(C, A) the same for each class, over those of the tests that have samples of it"""
    loss: Band
    """() points (0 … 1) that a model loses per unit of age to fresh models on the same tests: least squares over all
    pairs, with an own level for each test; NaN if no test has models of two ages"""


def ages_shown(pairs: npt.NDArray[np.int64]) -> int:
    """How many ages, from the youngest on, are on the curve: to the oldest one that at least half as many tests have as
    the youngest; all if no other has.

    >>> ages_shown(np.array([5, 4, 3, 1])), ages_shown(np.array([5, 1])), ages_shown(np.array([], np.int64))
    (3, 2, 0)
    """
    enough = np.flatnonzero(2 * pairs >= pairs[:1])
    return int(enough[-1]) + 1 if len(enough) > 1 else len(pairs)


def placed(pairs: Pairs, lags: Ints) -> tuple[bool, Ints]:
    """Whether some step is tested by models of all these lags, and (J, A) these tests; else those of the models that
    were tested at all of them."""
    test = {key: m for m, key in enumerate(zip(pairs.model.tolist(), pairs.tested.tolist(), strict=True))}
    for of_tests in (True, False):
        own = sorted(set((pairs.tested if of_tests else pairs.model).tolist()))
        rows = [[test.get((i - k, i) if of_tests else (i, i + k), -1) for k in lags.tolist()] for i in own]
        whole = [row for row in rows if row and -1 not in row]
        if whole:
            break
    return of_tests, np.array(whole, np.int64).reshape(len(whole), len(lags))


def on_same(r: Array, places: Ints) -> Array:
    """r (..., M), places (J, A) → (..., A) means over J; without a test or model that lacks one of the ages.

    >>> on_same(np.array([0.9, np.nan, 0.5, 0.7]), np.array([[0, 1], [2, 3]])).tolist()
    [0.5, 0.7]
    """
    values = r[..., places]
    values = np.where(np.isnan(values).any(-1, keepdims=True), np.nan, values)
    present = ~np.isnan(values)
    count = present.sum(-2)
    return np.where(count > 0, np.where(present, values, 0).sum(-2) / np.maximum(count, 1), np.nan)
