"""Distances between steps beside the floor that chance alone gives, on planted worlds."""

from dataclasses import replace

import numpy as np
import pytest
from claims.worlds import planted

from driftline.curate.core.seeding import rng_for
from driftline.eval.reporting.pages import contamination, drifts, leakage, page, summary
from driftline.stream_builder.measures.shift_distance import SLICED, _divisions, drift, floors, measured, sliced
from driftline.stream_builder.stream import Stream


def above(stream: Stream) -> dict[str, list[bool]]:
    """Measure → whether each step but the last is above its floor."""
    found = measured(stream, ["sliced", "paper"], False, None, False, 0)
    return {
        name: [d > f for d, f in list(zip(found[name], floor, strict=True))[: len(stream.steps) - 1]]
        for name, floor in found["floor"].items()
    }


def test_what_moves_is_above_its_floor_and_what_stays_is_not() -> None:
    moved = above(planted(0, steps=4, train=150, test=90, size=1, harder=0.3))
    assert {name: steps[0] for name, steps in moved.items()} == dict.fromkeys(
        ("sliced", "covariate", "conditional"), True
    )
    still = above(planted(0, steps=4))
    assert sum(map(sum, still.values())) <= 1


@pytest.mark.proof("statistics")
@pytest.mark.parametrize("size", [1, 3])
def test_without_drift_one_step_in_twenty_is_above_its_floor(size: int) -> None:
    """Also where the samples of an uploader are alike."""
    found = [above(planted(seed, steps=4, train=45, test=30, size=size)) for seed in range(60)]
    for name in found[0]:
        assert np.mean([one[name] for one in found]) <= 0.08, name  # 5 % and what 60 worlds vary


def test_a_floor_is_not_made_of_few_groups_or_of_steps_that_take_too_long() -> None:
    few, wide = planted(0, steps=2, train=40, test=20, size=10), planted(0, steps=2, train=1200, test=1200, size=1)
    assert floors(few, ["sliced"])["floor_because"]["sliced"] == "not known, a step has too few groups"
    assert floors(wide, ["w2"]) == {"floor": {"w2": None}, "floor_because": {"w2": "not known, it would take too long"}}


def test_a_floor_has_its_reason_and_is_the_same_again() -> None:
    stream = planted(0, steps=3)
    once = floors(stream, ["sliced"])
    assert once == floors(stream, ["sliced"])
    assert once["floor_because"]["sliced"] == "95 % of 200 random divisions are below"
    fewer = floors(stream, ["sliced"], pairs=SLICED * 120 * 3 * 30)
    assert fewer["floor_because"]["sliced"] == "95 % of 30 random divisions are below"


def test_the_groups_of_a_division_are_on_one_side() -> None:
    group = np.repeat(np.arange(20), 5)
    for others, tests in _divisions(group, 32, 20, 0):
        assert sorted([*others, *tests]) == list(range(100))
        assert not set(group[others]) & set(group[tests])
        assert len(tests) == 35


def test_sliced_takes_the_quantiles_that_numpy_takes() -> None:
    rng = np.random.default_rng(0)
    for n, m in ((7, 7), (5, 9), (12, 8)):
        a, b = rng.normal(size=(n, 1)), rng.normal(size=(m, 1))
        q, axes = (np.arange(max(n, m)) + 0.5) / max(n, m), np.sign(rng_for(0, "sliced").normal(size=(1, 3)))
        left, right = (np.quantile(points @ axes, q, axis=0, method="inverted_cdf") for points in (a, b))
        assert sliced(a, b, directions=3) == pytest.approx(float(np.sqrt(((left - right) ** 2).mean())), rel=1e-12)


def test_the_page_of_a_stream_begins_with_three_verdicts() -> None:
    stream = planted(1, steps=4, train=150, test=90, size=1, harder=0.3)
    assert summary(stream).startswith("4 steps, 1970-01-")
    found = page(stream)
    assert [check.what for check in found["checks"]] == ["Leakage", "Encoder contamination", "Drift"]
    assert leakage(stream).verdict == "none"
    assert contamination(stream).verdict == "not known"
    known = replace(stream, facts={"encoder_cutoff": "1971"})
    _, verdict, because = contamination(known)
    assert verdict == "possible"
    assert because == "the encoder was trained until 1971; 50.0% of the test samples are not newer."
    assert found["checks"][2].verdict == "found"
    still = planted(1, steps=4)
    assert drifts(still, drift(still)).verdict == "not shown"
    drawn = next(part for part in found["sections"] if part.id == "drift")
    assert "floor of chance" in drawn.html
    assert ">2002<" in drawn.html, "the axis has the names of steps"
