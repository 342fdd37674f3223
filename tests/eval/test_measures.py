"""Measures of other papers by hand, intervals against scipy, and the grid in processes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy.stats import bootstrap
from support.helpers import drifting

from driftline.curate.core.seeding import rng_for
from driftline.eval.protocol import PROTOCOLS
from driftline.eval.protocols.clear import MEASURES as BY_SCORE
from driftline.eval.reporting.protocols import page_of
from driftline.eval.rows import Answers, Row, Run, counted
from driftline.eval.run import evaluate
from driftline.eval.scoring.aggregate import _over_samples, _spread
from driftline.eval.scoring.bands import half_width
from driftline.eval.scoring.sums import draws_of
from driftline.stream_builder.stream import Stream

MEASURES = {score.name: measure for score, measure in BY_SCORE.items()}
R = np.array([[0.8, 0.4, 0.3], [0.9, 0.7, 0.5], [0.6, 0.8, 0.9]])
B = np.array([0.3, 0.2, 0.1])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gem_backward", ((0.6 - 0.8) + (0.8 - 0.7)) / 2),
        ("gem_forward", ((0.4 - 0.2) + (0.5 - 0.1)) / 2),
        ("remembering", 1 - 0),
        ("positive_backward", ((0.9 - 0.8) + (0.6 - 0.8) + (0.8 - 0.7)) / 3),
        ("forgetting", ((0.9 - 0.6) + (0.7 - 0.8)) / 2),
        ("incremental_accuracy", (0.8 + (0.9 + 0.7) / 2 + (0.6 + 0.8 + 0.9) / 3) / 3),
    ],
)
def test_each_measure_by_its_papers_equation(name: str, expected: float) -> None:
    assert MEASURES[name](R, B) == pytest.approx(max(expected, 0) if name == "positive_backward" else expected)


def test_remembering_falls_below_one_with_forgetting() -> None:
    worse = np.array([[0.9, 0.1], [0.5, 0.9]])
    assert MEASURES["remembering"](worse, B[:2]) == pytest.approx(0.6)
    assert MEASURES["positive_backward"](worse, B[:2]) == 0


def test_the_interval_covers_and_the_test_is_scipys() -> None:
    values = rng_for(0).normal(0.9, 0.01, 8)
    wide = bootstrap((values,), np.mean, rng=np.random.default_rng(0)).confidence_interval
    assert half_width(values.tolist()) == pytest.approx((wide.high - wide.low) / 2, rel=0.35)
    of_three = 4.302653 * 0.02 / np.sqrt(3)  # 97.5 % of t with two degrees of freedom
    assert half_width([0.90, 0.92, 0.94]) == pytest.approx(of_three, rel=1e-6)
    assert half_width([0.5]) is half_width([0.7] * 5) is None


def test_the_document_tells_measures_classes_intervals_and_p(stream: Stream) -> None:
    found = evaluate(stream, "clear-iid", ["nearest-mean", "random"], seeds=[0, 1, 2])
    best, worse = found["results"]
    assert best["p_against_best_adjusted"] == dict.fromkeys(best["scores"])
    assert set(best["measures"]) == set(MEASURES)
    assert worse["p_against_best_adjusted"].pop("next_domain") < 0.05
    assert set(worse["p_against_best_adjusted"].values()) == {None}, "of the primary score alone"
    assert worse["ci95"]["in_domain"] > 0
    streaming = evaluate(stream, "clear-streaming", ["nearest-mean"])["results"][0]
    assert streaming["measures"] == {}


def test_deterministic_learners_differ_by_their_test_samples(stream: Stream) -> None:
    found = evaluate(stream, "clear-iid", ["nearest-mean", "majority"], seeds=[0, 1, 2, 3, 4])
    ps = [result["p_against_best_adjusted"]["next_domain"] for result in found["results"]]
    assert max(p for p in ps if p is not None) < 0.001


def _half(protocol: str, rows: Sequence[Row]) -> float:
    """Of the primary score over test samples."""
    run = Run({"protocol": protocol, "stream": {}}, list(rows))
    return next(iter(_over_samples(PROTOCOLS[protocol](), [run], draws_of([run]), "").values()))


def test_the_interval_over_samples_covers_what_other_samples_give() -> None:
    """Simulated tests of a learner that is right with probability .7: the interval holds the truth in 93 to 98 %."""
    rng, inside, n = rng_for(0, "coverage"), 0, 400
    for _ in range(n):
        hits = rng.random(150) < 0.7
        answers = Answers(np.arange(150), np.ones(150, int), hits.astype(int))
        half = _half("clear-iid", [Row("1", 150, int(hits.sum()), 0, answers=answers)])
        inside += abs(hits.mean() - 0.7) <= half
    assert 0.93 <= inside / n <= 0.98


def test_answers_that_come_in_runs_have_a_wider_interval() -> None:
    """40 parts of a stream, right or wrong as a whole in runs of 4 parts: ten answers, not 4,000."""
    rows = [Row("near_future", 100, 100 * (part // 4 % 2)) for part in range(40)]
    assert _half("near-future", rows) == pytest.approx(2.262 * 0.5 / 3, rel=0.01)  # t(9)


def test_learners_with_one_seed_share_their_random_numbers(stream: Stream) -> None:
    """Equal networks begin with equal weights and batches: until its memory holds a past step, `er` is `finetune`."""
    runs: list[Run] = []
    evaluate(stream, "clear-iid", ["finetune", "er"], settings={"epochs": 1}, keep_run=runs.append)
    first, other = ([counted(row) for row in run.rows if row.learned_to <= 0] for run in runs)
    assert first == other
    assert [row.n_correct for row in runs[0].rows] != [row.n_correct for row in runs[1].rows]


@pytest.mark.parametrize(
    ("protocol", "settings", "words"),
    [
        ("clear-iid", {}, "The train and test samples are the same for every seed."),
        ("clear-iid", {"splits": "seeded"}, "splits=seeded: the train and test samples"),
        ("clear-streaming", {}, "The train and test samples are the same for every seed."),
        ("near-future", {}, "the same for every seed"),
        ("seq-to-final", {}, "no seed redraws them"),
        ("ocrr", {"scenario": "within-class"}, "which samples are novel stays the same for every seed"),
        ("ocrr", {"scenario": "paraphrase"}, "which samples are novel stays the same for every seed"),
        ("ocrr", {"scenario": "categorical"}, "the held-out classes"),
    ],
)
def test_each_protocol_says_what_its_seeds_vary(protocol: str, settings: dict[str, Any], words: str) -> None:
    assert words in page_of({"protocol": protocol}).varies(
        {"protocol": protocol, "stream": {"sha256": "x"}, "results": [{"settings": settings}]}
    )


def test_random_guesses_gain_nothing_before_they_learn() -> None:
    found = evaluate(drifting(steps=4, n=300), "clear-iid", ["random"], seeds=range(3))["results"][0]
    assert abs(found["measures"]["gem_forward"]["mean"]) < 0.06


def test_joint_sees_everything_at_once(stream: Stream) -> None:
    found = evaluate(stream, "clear-iid", ["joint"], settings={"epochs": 20})["results"][0]
    assert all(row == found["matrix"][0] for row in found["matrix"])
    assert np.mean(found["matrix"]) > 0.8


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.5, 1.0], {"mean": 0.75, "sd": 0.25}),
        ([0.5, None, 1.0], {"mean": 0.75, "sd": 0.25, "reached": 2}),
        ([None], {"mean": None, "sd": None, "reached": 0}),
    ],
)
def test_a_mean_says_how_many_seeds_got_there(values: list[float | None], expected: dict[str, object]) -> None:
    assert _spread(values) == expected | {"values": values}
