"""The parts of ageing against NumPy's functions and plain Python, with tests that were not made (NaN)."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from driftline.eval.rows import Answers, Row, Run
from driftline.eval.scoring.bands import quantiles
from driftline.eval.scoring.decay import by_lag, falling, first_below, left_over, pairs_of
from driftline.eval.scoring.sums import Draws, Resampling, drawn, draws_of, summed

STEPS = 6
PAIRS = pairs_of([(i, j) for i in range(STEPS) for j in range(i, STEPS)], np.arange(float(STEPS)))
LAGS = np.arange(STEPS)


@pytest.fixture
def matrix() -> npt.NDArray[np.float64]:
    """(T, T) accuracies with holes; row: trained, column: tested."""
    rng = np.random.default_rng(0)
    found = rng.uniform(0.3, 1, (STEPS, STEPS))
    found[1, 3] = found[2, 2] = np.nan
    return found


def pairs(lag: int) -> list[tuple[int, int]]:
    return [(i, i + lag) for i in range(STEPS - lag)]


def plain_mean(values: list[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def test_quantiles_are_numpys_without_nan() -> None:
    drawn = np.random.default_rng(1).normal(size=(200, 4))
    drawn[:50, 1] = np.nan
    drawn[:, 2] = np.nan
    with pytest.warns(RuntimeWarning, match="All-NaN"):
        expected = np.nanquantile(drawn, [0.025, 0.975], axis=0)
    assert np.allclose(quantiles(drawn, (0.025, 0.975)), expected, equal_nan=True)


def test_quantiles_of_what_is_not_reached_are_infinite() -> None:
    drawn = np.array([[1.0], [2.0], [np.inf], [np.inf]])
    low, high = quantiles(drawn, (0.0, 0.975))
    assert (low[0], high[0]) == (1, np.inf)


def test_accuracy_by_lag_is_that_of_a_loop(matrix: npt.NDArray[np.float64]) -> None:
    level = plain_mean(list(np.diag(matrix)))
    changes = [plain_mean([matrix[i, j] - matrix[j, j] for i, j in pairs(lag)]) for lag in LAGS]
    assert np.allclose(by_lag(matrix[PAIRS.model, PAIRS.tested], PAIRS), [level + change for change in changes])


def test_what_is_left_above_chance_is_that_of_a_loop(matrix: npt.NDArray[np.float64]) -> None:
    chance = np.linspace(0.1, 0.2, STEPS)[None]
    expected = []
    for lag in LAGS:
        known = [(i, j) for i, j in pairs(lag) if not np.isnan(matrix[i, j] + matrix[i, i])]
        now = sum(matrix[i, j] - chance[0, j] for i, j in known)
        expected.append(now / sum(matrix[i, i] - chance[0, i] for i, _ in known))
    assert np.allclose(left_over(matrix[PAIRS.model, PAIRS.tested], chance[0, PAIRS.tested], PAIRS), expected)


@pytest.mark.parametrize("hole", [None, 2])
def test_the_first_crossing_is_that_of_a_fine_grid(hole: int | None) -> None:
    ages = np.array([0.0, 1.0, 2.5, 4.0, 6.0])
    rng = np.random.default_rng(2)
    for _ in range(20):
        values = rng.uniform(0, 1, 5)
        values[0] = 1.0
        kept = np.arange(5) != hole
        grid = np.linspace(0, 6, 60_001)
        below = np.interp(grid, ages[kept], values[kept]) <= 0.5
        expected: Any = grid[below.argmax()] if below.any() else np.inf
        shown = np.where(kept, values, np.nan)
        assert first_below(shown[None], 0.5, ages)[0] == pytest.approx(expected, abs=2e-4)


def test_what_never_rises_is_that_of_scikit_learn() -> None:
    from sklearn.isotonic import IsotonicRegression

    rng = np.random.default_rng(4)
    for values in rng.uniform(0, 1, (20, 9)):
        expected = IsotonicRegression(increasing=False).fit_transform(np.arange(9), values)
        assert np.allclose(falling(values), expected)
        holes = np.insert(values, [0, 3, 9], np.nan)
        assert np.allclose(falling(holes)[~np.isnan(holes)], expected)
        assert np.isnan(falling(holes)).sum() == 3


@pytest.mark.parametrize("cells", [2, 900])
def test_sums_are_those_of_each_drawn_sample(cells: int) -> None:
    """Dense and sparse: samples counted one by one, as often as their group is drawn."""
    rng = np.random.default_rng(3)
    place = np.repeat(np.arange(50), 4)
    draws = Draws(Resampling(20), place, 50)
    cell, hit = rng.integers(0, cells, 200), rng.random(200) < 0.5
    answers = Answers(np.arange(200), hit, hit)
    of = summed([[(answers, cell, (hit, np.ones(200, bool)))]], (cells,), draws)
    right, n = np.zeros((2, 20, cells))
    for b, weights in enumerate(draws.weights):
        for k in range(200):
            n[b, cell[k]] += weights[place[k]]
            right[b, cell[k]] += weights[place[k]] * hit[k]
    assert all(np.array_equal(a, b) for a, b in zip(of.weighted(draws.weights), (right, n), strict=True))
    assert np.allclose(draws.weights.sum(1), 50)


def test_seeds_add_what_samples_of_single_seeds_do_not_explain() -> None:
    """Three seeds that differ by chance alone: the variance is that of their mean, not more by s² / 3."""
    rng, n, found = np.random.default_rng(5), 400, []
    draws = Draws(Resampling(400), np.arange(n), n)
    for _ in range(60):
        hits = rng.random((3, n)) < 0.7
        parts = [[(Answers(np.arange(n), hit, hit), np.zeros(n, int), (hit, np.ones(n, bool)))] for hit in hits]
        one = drawn(lambda right, n: {"": right[..., 0] / n[..., 0]}, summed(parts, (1,), draws))[""]
        found.append([float(part) for part in one.variances()])
    of_samples, of_seeds, of_single = np.mean(found, 0)
    assert of_samples == pytest.approx(0.21 / 1200, rel=0.1)
    assert of_seeds == pytest.approx(of_single, rel=0.25)


def test_samples_in_order_are_joined_at_random() -> None:
    """The first half is right: groups that have equally many of each half would make the interval a point."""
    n = 50_000
    answers = Answers(np.arange(n), np.zeros(n, int), np.arange(n) >= n // 2)
    run = Run({"stream": {}}, [Row("0", n, n // 2, answers=answers)])
    draws = draws_of([run])
    of = summed([[(answers, np.zeros(n, int), (np.arange(n) < n // 2, np.ones(n, bool)))]], (1,), draws)
    assert draws.groups == 512
    found = drawn(lambda right, n: {"": right[..., 0] / n[..., 0]}, of)[""]
    assert float(found.variances()[0]) == pytest.approx(0.25 / n, rel=0.25)
