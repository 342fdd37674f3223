"""The blind classifier against a literal twin, a closed form, and the reference simulation."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.curate.core.errors import IncompatibleStream
from driftline.curate.core.seeding import rng_for
from driftline.stream_builder.measures.label_correlation import autocorrelation, blind_curve, half_width, modes


def literal(y: list[int], k: int) -> list[int]:
    """Counts every window from scratch: the newest label if none is more frequent; if the mode left, the lowest of the
    most frequent; else the mode stays."""
    found, mode = [], y[0]
    for i in range(len(y)):
        counts = Counter(y[max(0, i - k + 1) : i + 1])
        if i >= k and y[i - k] == mode != y[i]:
            mode = min(label for label, n in counts.items() if n == max(counts.values()))
        if counts[y[i]] >= counts[mode]:
            mode = y[i]
        found.append(mode)
    return found


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(1, 12))
def test_the_mode_of_the_last_k_equals_its_literal_twin(y: list[int], k: int) -> None:
    found = modes(np.array(y), k).tolist()
    assert found == literal(y, k)
    assert all(y[max(0, i - k + 1) : i + 1].count(mode) for i, mode in enumerate(found))


@given(st.lists(st.integers(0, 3), min_size=3, max_size=40), st.integers(0, 5), st.integers(1, 6))
def test_accuracy_equals_predicting_one_sample_after_another(y: list[int], s: int, k: int) -> None:
    if s + 1 >= len(y) or 2 * s > len(y) or k > len(y):
        return
    mode = modes(np.array(y), k)
    right = [mode[i - s - 1] == y[i] for i in range(s + 1, len(y))]
    assert blind_curve(np.array(y), (s,), (k,)).accuracy[0, 0] == pytest.approx(np.mean(right))


def markov(n: int, classes: int, rho: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Labels that repeat with probability rho, else are drawn from a Zipf law of exponent 0.6."""
    rng = np.random.default_rng(seed)
    p = np.arange(1, classes + 1) ** -0.6
    p /= p.sum()
    fresh = rng.choice(classes, n, p=p)
    stays = rng.random(n) < rho
    stays[0] = False
    last = np.maximum.accumulate(np.where(stays, 0, np.arange(n)))
    return fresh[last], p


def test_a_markov_stream_has_the_accuracy_of_its_closed_form() -> None:
    """k = 1: ρ^(S+1) + (1 − ρ^(S+1)) Σ p². Chance is that of the permuted stream (about .036), not 1 / 500."""
    y, p = markov(200_000, 500, 0.98)
    curve = blind_curve(y, (0, 16, 64, 256, 1024), (1, 5000))
    for s, found in zip(curve.shifts, curve.accuracy[:, 0], strict=True):
        repeat = 0.98 ** (s + 1)
        assert found == pytest.approx(repeat + (1 - repeat) * (p**2).sum(), abs=0.02)
    assert curve.chance == pytest.approx(p.max(), abs=0.015)
    assert curve.suggested in (256, 1024)


def test_a_stream_in_random_order_is_at_chance_at_once() -> None:
    y = np.random.default_rng(0).integers(0, 20, 20_000)
    assert blind_curve(y, (0, 16, 256)).suggested == 0


def test_correlation_that_outlasts_the_grid_has_no_suggestion() -> None:
    y = np.repeat(np.arange(4), 2000)
    curve = blind_curve(y, (0, 2, 8), (1, 5))
    assert curve.suggested is None
    assert curve.best[0] > 0.99


def test_autocorrelation_of_runs_falls_with_the_lag() -> None:
    y, _ = markov(50_000, 50, 0.9)
    found = autocorrelation(y, (1, 8, 64))
    assert found[1] == pytest.approx(0.9, abs=0.02)
    assert found[8] == pytest.approx(0.9**8, abs=0.03)
    assert abs(found[64]) < 0.02


def runs_of_labels(n: int, length: int, classes: int, seed: int) -> np.ndarray:
    """Runs of one label each, of geometric length."""
    rng = rng_for(seed, "runs", length)
    lengths = rng.geometric(1 / length, size=1 + 4 * n // length)
    return np.repeat(rng.integers(0, classes, len(lengths)), lengths)[:n]


@pytest.mark.parametrize(("length", "shift"), [(1, 0), (5, 8), (30, 0), (30, 8), (100, 32)])
def test_the_curves_interval_holds_the_truth_in_95_per_cent_of_streams(length: int, shift: int) -> None:
    """300 simulated streams of runs: the last label is right if its run goes on, else one time in ten."""
    goes_on = (1 - 1 / length) ** (shift + 1)
    truth, n, streams = goes_on + (1 - goes_on) / 10, 3000, 300
    held, independent = 0, 0
    for seed in range(streams):
        curve = blind_curve(runs_of_labels(n, length, 10, seed), (shift,), (1,))
        error = abs(curve.best[0] - truth)
        held += error <= curve.half_width[0]
        independent += error <= 1.96 * (truth * (1 - truth) / n) ** 0.5
    assert 0.92 <= held / streams <= 0.99
    if shift > 0:
        assert independent / streams < 0.7, "a binomial interval would not do"


def test_the_interval_is_that_of_the_best_window() -> None:
    y = runs_of_labels(2000, 10, 5, 0)
    curve = blind_curve(y, (0, 16), (1, 20, 500))
    for i, s in enumerate(curve.shifts):
        right = modes(y, curve.best_k[i])[: len(y) - s - 1] == y[s + 1 :]
        assert curve.half_width[i] == half_width(right, np.ones(len(right)))


def test_a_classifier_that_is_always_right_has_an_interval() -> None:
    assert 0 < half_width(np.ones(50), np.ones(50)) < 0.1
    assert half_width(np.ones(3), np.ones(3)) > 0.1


def test_a_stream_of_one_sample_is_refused() -> None:
    with pytest.raises(IncompatibleStream, match="1 samples"):
        blind_curve(np.array([0]))
