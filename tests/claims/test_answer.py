"""The first sentences of a report, from numbers made by hand: each word follows from an interval or a p."""

from __future__ import annotations

import re
from typing import Any

import pytest

from driftline.eval.protocol import Score
from driftline.eval.reporting.ageing import points
from driftline.eval.reporting.answer import answer

SCORE = Score("first", "first")


def result(name: str, mean: float, older: tuple[float, float, float], **more: Any) -> dict[str, Any]:
    """A learner that is `mean` right, whose models lose `older` (value, low, high) a year by their age."""
    ends = dict(zip(("value", "low", "high"), older, strict=True))
    return {
        "learner": name, "label": name, "settings": {}, "seeds": [0, 1, 2], "seconds": 6.0, "measures": {},
        "scores": {"first": {"mean": mean, "sd": 0.0, "values": [mean] * 3}},
        "ageing": {
            "age": [0.0, 2.0], "youngest": [0.0, 2.0], "oldest": [0.0, 2.0],
            "tests": 2, "tested": [1, 2], "models": 0, "pairs": 3,
            "accuracy": {"value": [mean, mean - older[0]], "low": [0.0, 0.0], "high": [1.0, 1.0]},
            "causes": {"older": {"value": [0.0, older[0]]}}, "loss": ends,
            "half_life": {"value": 1.5, "low": 1.0, "high": 2.0, "reached": 1.0, "tested": 2.0, "why": ""},
        },
        **more,
    }  # fmt: skip


def text(*results: dict[str, Any]) -> str:
    document = {"results": list(results), "primary": SCORE, "ageing": {"unit": "years", "dates": [0, 1]}}
    return re.sub(r"<[^>]+>", "", " ".join(answer(document)))


@pytest.mark.parametrize(
    ("slow", "fast", "apart"),
    [
        ((0.1, 0.05, 0.15), (0.3, 0.25, 0.35), True),
        ((0.1, 0.05, 0.2), (0.3, 0.15, 0.35), False),
        ((0.1, 0.05, 0.2), (0.3, 0.2, 0.35), False),
    ],
)
def test_who_ages_fastest_is_said_only_where_the_intervals_are_apart(slow: Any, fast: Any, apart: bool) -> None:
    found = text(result("er", 0.9, fast), result("ridge", 0.8, slow))
    least, most = ("ages least", "ages fastest") if apart else ("fell least", "fell most")
    assert f"ridge {least}: it loses 10.0 points a year ({100 * slow[1]:.1f} to {100 * slow[2]:.1f}) to fresh" in found
    assert f"er {most}: it loses 30.0 points a year" in found
    assert "to fresh models on the same tests (3 pairs); half of what it knows above chance is gone after" in found
    assert ("No learner ages faster than another beyond the 95 % intervals." in found) != apart
    assert "After 2.0 years, ridge is first by accuracy: 70.0 %, after 80.0 % when fresh, on the same 2 tests" in found
    assert "er is first by first, 90.0" in found, "without a test nobody is the best"


def test_a_cost_is_that_of_one_run() -> None:
    old = (0.1, 0.0, 0.2)
    assert "A run of ridge takes 2.0 s, one of er 5 times as long (10.0 s)." in text(
        result("er", 0.9, old, seconds=30.0), result("ridge", 0.8, old)
    )


def test_only_learners_with_a_large_p_are_called_alike() -> None:
    old, key = (0.1, 0.0, 0.2), "p_against_best_adjusted"
    found = text(
        result("er", 0.9, old),
        result("ridge", 0.8, old, **{key: {"first": 0.01}}),
        result("slda", 0.85, old, **{key: {"first": 0.3}}),
    )
    assert re.search(r"Not significantly different from er \([^)]*\): slda\.", found)


def test_points_are_rounded_to_the_nearest_tenth() -> None:
    assert [points(v) for v in (0.12345, 0.12355, -0.0126, 0.0)] == ["12.3", "12.4", "−1.3", "0.0"]


def test_who_may_not_win_is_not_compared() -> None:
    """A bound with settings in its label, a blind learner, equal rows; and p of a test against a blind learner."""
    old, key = (0.1, 0.0, 0.2), "p_against_best_adjusted"
    rows = [
        result("joint", 0.99, old, standing="bound", label="joint, splits=seeded"),
        result("blind", 0.98, old, standing="blind"),
        result("er", 0.9, old, **{key: {"first": 0.001}}),
        result("er-online", 0.9, old, same_as="er"),
        result("slda", 0.85, old, **{key: {"first": 0.3}}),
    ]
    found = text(*rows)
    assert "er is first by first, 90.0 ± 0.0, of 2 learners." in found
    assert "Not significantly different" not in found, "both p are against the blind learner"
    assert "Upper bound, joint, splits=seeded: 99.0" in found
    assert not re.search(r"er-online|blind", found)


@pytest.mark.parametrize(
    ("seeds", "says"),
    [
        (1, "One seed: the bands know what other test samples would change"),
        (4, "4 seeds: how far seeds differ"),
        (5, ""),
    ],
)
def test_what_few_seeds_do_not_tell_is_said(seeds: int, says: str) -> None:
    sentence = [line for line in answer_of(seeds) if "bands" in line]
    assert [line.startswith(says) for line in sentence] == [True] * bool(says)


def answer_of(seeds: int) -> list[str]:
    result_of_er = result("er", 0.9, (0.1, 0.0, 0.2), seeds=list(range(seeds)))
    return answer({"results": [result_of_er], "primary": SCORE, "ageing": {"unit": "years", "dates": [0, 1]}})
