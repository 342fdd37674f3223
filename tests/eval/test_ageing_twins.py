"""The parts of ageing against NumPy's functions and plain Python, with tests that were not made (NaN)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from driftline.eval.scoring.bands import band, mean, quantiles
from driftline.eval.scoring.cells import Resampling, weighted_sums
from driftline.eval.scoring.decay import by_lag, first_below, left_over, lost

STEPS = 6
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
    found = band(np.array([0.0, np.nan, 0.0, 0.0]), drawn)
    assert np.allclose([found.low[0], found.high[0]], expected[:, 0])
    assert np.isnan([found.low[1], found.high[1]]).all()


def test_quantiles_of_what_is_not_reached_are_infinite() -> None:
    drawn = np.array([[1.0], [2.0], [np.inf], [np.inf]])
    low, high = quantiles(drawn, (0.0, 0.975))
    assert (low[0], high[0]) == (1, np.inf)


def test_mean_is_numpys_without_nan(matrix: npt.NDArray[np.float64]) -> None:
    assert np.allclose(mean(matrix, 1), np.nanmean(matrix, 1))
    assert np.isnan(mean(np.full((1, 2), np.nan), 1)).all()


def test_accuracy_by_lag_is_that_of_a_loop(matrix: npt.NDArray[np.float64]) -> None:
    level = plain_mean(list(np.diag(matrix)))
    changes = [plain_mean([matrix[i, j] - matrix[j, j] for i, j in pairs(lag)]) for lag in LAGS]
    assert np.allclose(by_lag(matrix, LAGS, 0), [level + change for change in changes])


def test_what_was_lost_is_that_of_a_loop(matrix: npt.NDArray[np.float64]) -> None:
    expected = [plain_mean([matrix[i, i] - matrix[i, j] for i, j in pairs(lag)]) for lag in LAGS]
    assert np.allclose(lost(matrix, LAGS), expected)


def test_what_is_left_above_chance_is_that_of_a_loop(matrix: npt.NDArray[np.float64]) -> None:
    chance = np.linspace(0.1, 0.2, STEPS)[None]
    expected = []
    for lag in LAGS:
        known = [(i, j) for i, j in pairs(lag) if not np.isnan(matrix[i, j] + matrix[i, i])]
        now = sum(matrix[i, j] - chance[0, j] for i, j in known)
        expected.append(now / sum(matrix[i, i] - chance[0, i] for i, _ in known))
    assert np.allclose(left_over(matrix, chance, LAGS), expected)


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


def test_weighted_sums_are_those_of_one_product() -> None:
    rng = np.random.default_rng(3)
    resampling, samples = Resampling(replicates=50), np.arange(3000)
    values = rng.integers(0, 2, (4, 3000))
    expected = values.astype(np.float64) @ resampling.weights(samples).astype(np.float64)
    assert np.allclose(weighted_sums(resampling, samples, values), expected.T, rtol=1e-5)
