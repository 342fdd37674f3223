"""Claims about learners and ages on data with a known truth: where nothing differs, (almost) nothing is said to."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from driftline.curate.core.seeding import rng_for
from driftline.curate.release.drift import drift
from driftline.eval.reporting.ageing import curves, facts_of, table
from driftline.eval.rows import Answers, Row, Run
from driftline.eval.scoring.ageing import ageing
from driftline.eval.scoring.aggregate import summary
from driftline.eval.scoring.sums import Resampling


def _buckets(turn: float, noise: Sequence[float], seed: int) -> tuple[Any, Any, Any, Any]:
    """Two classes on a circle that turns by `turn` degrees a bucket, each bucket with its own noise; half are tests."""
    rng = rng_for(seed, "buckets")
    bucket, y = np.repeat(np.arange(len(noise)), 400), np.tile([0, 0, 1, 1], 100 * len(noise))
    angle = np.deg2rad(turn * bucket) + np.pi * y
    x = np.stack([np.cos(angle), np.sin(angle)], 1) + np.array(noise)[bucket, None] * rng.normal(size=(len(y), 2))
    return x.astype(np.float32), y, bucket, np.where(np.arange(len(y)) % 2, "test", "train")


NOISIER = (0.3, 0.3, 0.5, 1.0, 2.0, 4.0)


def test_a_noisier_end_is_no_fall_with_age() -> None:
    """No drift: means of all tests at a distance fall by more than .15, paired changes by nothing."""
    for seed in range(3):
        found = drift(*_buckets(0, NOISIER, seed))
        matrix = np.array(found["matrix"], float)
        assert np.diagonal(matrix, 5).mean() - np.diagonal(matrix).mean() < -0.15
        assert all(abs(at["change"]) < 0.05 for at in found["by_distance"].values())


def test_changes_by_distance_are_those_counted_by_hand() -> None:
    """Every model and every test in a loop; one bucket has no training, another no tests."""
    x, y, bucket, side = _buckets(25, NOISIER, 3)
    keep = ~((bucket == 1) & (side == "train")) & ~((bucket == 4) & (side == "test"))
    x, y, bucket, side = x[keep], y[keep], bucket[keep], side[keep]

    def right(trained: int, tested: int) -> float:
        means = [x[(bucket == trained) & (side == "train") & (y == c)].mean(0) for c in (0, 1)]
        rows = np.flatnonzero((bucket == tested) & (side == "test"))
        nearest = [int(np.argmin([np.linalg.norm(x[row] - mean) for mean in means])) for row in rows]
        return float(np.mean(np.array(nearest) == y[rows]))

    by_distance: dict[str, dict[str, float]] = {}
    for d in range(-5, 6):
        tests = [j for j in (0, 2, 3, 5) if j - d in (0, 2, 3, 4, 5)]
        if tests:
            change = float(np.mean([right(j - d, j) - right(j, j) for j in tests]))
            by_distance[str(d)] = {"change": pytest.approx(change), "tests": len(tests)}
    found = drift(x, y, bucket, side)
    assert found["by_distance"] == by_distance
    assert found["in_domain"] == pytest.approx(np.mean([right(j, j) for j in (0, 2, 3, 5)]))


YEAR = 365.2425 * 86400


def _runs(r: Any, years: Sequence[float]) -> list[Run]:
    """clear-iid with accuracies r (T, T), NaN: not tested, of 10,000 samples each."""
    about = {
        "protocol": "clear-iid", "learner": "er", "settings": {}, "protocol_settings": {}, "seed": 0, "seconds": 0.0,
        "stream": {"name": "s", "sha256": "s"}, "stored_bytes": 0, "gradient_steps": 0, "steps": len(r),
        "timeline": {"names": [str(year) for year in years], "dates": [round(year * YEAR) for year in years]},
    }  # fmt: skip
    tests = []
    for i, j in ((i, j) for i in range(len(r)) for j in range(len(r)) if not np.isnan(r[i, j])):
        hits = np.arange(10_000) < round(10_000 * r[i, j])
        answers = Answers(np.arange(10_000) + 10_000 * j, np.zeros(10_000, int), (~hits).astype(int))
        tests.append(Row(str(j), 10_000, int(hits.sum()), i, last_change=i, answers=answers))
    return [Run(about, tests)]


def test_a_learner_that_keeps_its_level_on_each_test_does_not_rise_with_age() -> None:
    """Late tests are easy, and old models lose 2 points a step on them and 1 point a step on the others: means at each
    age over other tests would fall less at old ages, or rise."""
    level, rate = np.array([0.5, 0.5, 0.6, 0.8, 0.9, 0.9]), np.array([1, 1, 1, 1, 2, 2]) / 100
    lag = np.maximum(np.arange(6)[None, :] - np.arange(6)[:, None], 0)
    (of_learner,) = ageing(_runs(level - rate * lag, range(6)))
    curve = of_learner.curve
    assert curve.tested.tolist() == [3, 4, 5]  # by four models each, of ages 0 to 3
    assert curve.age.tolist() == pytest.approx([0, 1, 2, 3], abs=1e-3)
    expected = [np.mean([level[j] - rate[j] * age for j in (3, 4, 5)]) for age in range(4)]
    assert curve.accuracy.value == pytest.approx(expected, abs=1e-4)


def test_a_test_that_some_models_lack_is_on_no_curve() -> None:
    r = rng_for(0, "cells").uniform(0.3, 0.9, (5, 5))
    r[2, 3] = np.nan
    (of_learner,) = ageing(_runs(r, range(5)))
    assert of_learner.curve.tested.tolist() == [2, 4]
    expected = [np.mean([r[j - lag, j] for j in (2, 4)]) for lag in range(3)]
    assert of_learner.curve.accuracy.value == pytest.approx(expected, abs=1e-3)


def test_loss_is_that_of_statsmodels_with_a_level_for_each_test() -> None:
    from statsmodels.regression.linear_model import OLS

    r, years = rng_for(1, "cells").uniform(0.3, 0.9, (5, 5)), np.array([0, 1, 2, 3, 13])
    r[0, 2] = np.nan
    (of_learner,) = ageing(_runs(r, years.tolist()))
    i, j = np.nonzero(np.triu(~np.isnan(r)))
    fitted = OLS(r[i, j], np.column_stack([years[j] - years[i], np.eye(5)[j]])).fit()
    assert of_learner.curve.loss.value == pytest.approx(-fitted.params[0], abs=1e-4)


def test_ages_of_unevenly_spaced_steps_are_named_with_their_range() -> None:
    """Steps at years 0, 1, 2, 3 and 13: two steps later is 2, 2 or 11 years."""
    years = (0, 1, 2, 3, 13)
    lag = np.arange(5)[None, :] - np.arange(5)[:, None]
    runs = _runs(0.9 - 0.05 * np.maximum(lag, 0), years)
    facts = facts_of(runs, None, Resampling())
    (of_learner,) = facts["results"]
    curve = of_learner.curve
    assert [ages[2] for ages in (curve.youngest, curve.age, curve.oldest)] == pytest.approx([2, 5, 11], abs=1e-3)
    document = summary(runs, "s", "s", "clear-iid")
    document["ageing"] = facts
    document["results"][0] |= {"label": "er", "aged": of_learner}
    section = table(document)
    assert "5.0 years (2.0 to 11) old" in section.html
    figure = curves(document)
    assert "ages are means: 4.0 years (1.0 to 10), 5.0 years (2.0 to 11)." in figure.caption
