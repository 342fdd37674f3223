"""The tests of one learner, by the time from training to test, and which of them are pairs.

A test is of a model where it last changed: a model that learns nothing at later steps has no tests of its own there,
and goes on ageing (see `rows.new_models`). A lag is the tested step minus the trained one; the base lag is the smallest
one from 0 on that is tested: 1 where no step is tested after it was learned.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from driftline.eval.protocol import stored_protocol
from driftline.eval.rows import Row, Run, new_models
from driftline.eval.scoring.bands import Array, Floats
from driftline.eval.scoring.sums import Draws, Sums, summed

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
    models on steps, if it never learned, and for rows without outcomes. times: (T,) of the steps."""
    kind = stored_protocol(runs[0].about["protocol"])
    tests = [new_models(run.rows, kind.roles.step) for run in runs]
    answers = [row.answers for test in tests for row in test.values()]
    if not answers or any(one is None for one in answers):
        return None
    pairs = pairs_of(list(dict.fromkeys(key for test in tests for key in test)), times)
    place = {key: m for m, key in enumerate(zip(pairs.model.tolist(), pairs.tested.tolist(), strict=True))}
    labels = {id(one.label): one.label for one in answers if one is not None}
    classes = 1 + max(int(label.max(initial=0)) for label in labels.values())
    parts = [
        [
            (a, place[key] * classes + a.label.astype(np.int64), (a.label == a.predicted, np.ones(len(a), bool)))
            for key, row in test.items()
            if (a := row.answers) is not None
        ]
        for test in tests
    ]
    of = {place[key]: draws.group_of(row.answers.sample) for key, row in tests[0].items() if row.answers is not None}
    steps = {int(pairs.tested[m]): len(np.unique(groups)) for m, groups in of.items()}
    clusters = int(np.mean(list(steps.values())) * len(np.unique(pairs.model)))
    return pairs, summed(parts, (len(place), classes), draws, clusters)


def constants(runs: Sequence[Run]) -> dict[int, int]:
    """Step → the class that most training samples up to it have, with most of the seeds; without steps whose rows do
    not say it."""
    kind, found = stored_protocol(runs[0].about["protocol"]), dict[int, list[int]]()
    for run in runs:
        of: dict[int, Row] = {i: row for (i, _), row in new_models(run.rows, kind.roles.step).items()}
        for i, row in of.items():
            found.setdefault(i, []).extend([row.constant] if row.constant >= 0 else [])
    return {i: int(np.bincount(classes).argmax()) for i, classes in found.items() if classes}
