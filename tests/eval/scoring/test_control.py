"""The control: times permuted by visits, its runs, and what follows for ageing."""

import json
import shutil
from collections import Counter
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from claims.worlds import Fresh, planted
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from support.helpers import drifting, grouped

from driftline.curate.core.errors import BadConfig
from driftline.eval.control import check_draws, controlled
from driftline.eval.predictions import find, groups_in, groups_of
from driftline.eval.protocols.clear import EqualIid, HalfStreaming, Streaming
from driftline.eval.reporting.report import results_of
from driftline.eval.results import Results
from driftline.eval.rows import Run, folders
from driftline.eval.run import evaluate
from driftline.eval.scoring.bands import interval
from driftline.eval.scoring.net import GRID, NO_CONTROL, Net, holm_named, matrix_of, net_of, nets_of, over_samples
from driftline.eval.scoring.retraining import harder_data, retrain_every, smallest_ageing
from driftline.eval.visits import Visits, halved, invalid, permuted, visits_of
from driftline.stream_builder.step import Split, Step
from driftline.stream_builder.stream import Stream


def small() -> Stream:
    """Three steps, two classes; groups of two or three samples."""
    return grouped(planted(1, steps=3, train=24, test=12, classes=2, size=2))


def samples(stream: Stream) -> dict[str, tuple[int, str, int, int]]:
    """id → step, side, class, group."""
    return {
        id_: (t, name, int(y), int(g))
        for t, step in enumerate(stream)
        for name, split in step.splits.items()
        for id_, y, g in zip(split.ids.tolist(), split.y, split.group, strict=True)
    }


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("size", [1, 3, 6])
def test_visits_stay_whole_on_their_side_and_sizes_and_shares_hold(size: int, mixed: bool) -> None:
    stream = planted(2, size=size, mixed=mixed)
    other = permuted(stream, visits_of(stream), "within", 0, 0)
    before, after = samples(stream), samples(other)
    assert before.keys() == after.keys()
    assert all(before[i][1:] == after[i][1:] for i in before)
    together: dict[tuple[int, str, int], set[int]] = {}
    for i, (t, side, _, group) in before.items():
        together.setdefault((t, side, group), set()).add(after[i][0])
    assert all(len(steps) == 1 for steps in together.values())
    for old, new in zip(stream, other, strict=True):
        for name in old.splits:
            n = len(old[name])
            assert abs(len(new[name]) - n) <= max(1, 0.02 * n)
            counts = [np.bincount(step[name].y, minlength=4) for step in (old, new)]
            assert np.abs(counts[0] - counts[1]).max() <= max(1, 0.01 * n)
            assert np.array_equal(np.sort(new[name].time), old[name].time)


def test_each_arrangement_is_as_likely_as_in_a_plain_permutation() -> None:
    """The twin: all permutations of the visits of a stratum, written out."""
    y, ids = np.array([0, 0]), np.array(["a", "b"])
    steps = [
        Step(t, str(t), {"test": Split(np.zeros((2, 1), np.float32), y, np.char.add(ids, str(t)), y * 0 + t,
                                       np.array([2 * t, 2 * t + 1]))})
        for t in range(2)
    ]  # fmt: skip
    stream = Stream("tiny", steps, ["only"], sha256="tiny")
    visits = visits_of(stream)
    drawn = Counter(
        tuple(i for step in permuted(stream, visits, "within", k, 0) for i in step["test"].ids.tolist())
        for k in range(1200)
    )
    plain = set(permutations([i for step in stream for i in step["test"].ids.tolist()]))
    assert drawn.keys() == plain
    assert stats.chisquare(list(drawn.values())).pvalue > 1e-3


def test_exchanges_of_unequal_visits_reach_every_valid_arrangement_equally() -> None:
    """Visits of 2 and 3 samples, 10 of each kind of place: none has an equal one in another step but sizes may differ
    by a sample. The twin: all assignments that hold the sizes."""
    sizes = [[2, 4], [3, 5]]
    splits = []
    for t, of_step in enumerate(sizes):
        group = np.repeat(10 * t + np.arange(2), of_step)
        n = len(group)
        ids = (10 * t + np.arange(n)).astype(str)
        splits.append(Split(np.zeros((n, 1), np.float32), np.zeros(n, np.int64), ids, np.full(n, t), group))
    visits = Visits(splits, np.array([0, 1]), np.array([2, 2]), 1)
    rng = np.random.default_rng(0)
    homes = Counter(tuple(visits.home[visits.drawn("within", rng)[0]].tolist()) for _ in range(400))
    valid = {
        home
        for home in {(a, b, 1 - a, 1 - b) for a in (0, 1) for b in (0, 1)}
        if abs(sum(s for s, h in zip((2, 4, 3, 5), home, strict=True) if h == 0) - 6) <= 1
    }
    assert homes.keys() == valid
    assert stats.chisquare(list(homes.values())).pvalue > 1e-3
    stream = Stream("uneven", [Step(t, str(t), {"test": splits[t]}) for t in (0, 1)], ["only"], sha256="uneven")
    moved = [permuted(stream, visits_of(stream), "within", k, 0) for k in range(9)]
    assert {len({(t, group) for t, _, _, group in samples(one).values()}) for one in moved} == {4}, "they stay whole"


def test_a_class_with_few_visits_is_named() -> None:
    stream = planted(0, steps=10, train=30, test=12, size=3)
    assert "The class 'class 0' has 1" in invalid(stream, visits_of(stream))


def test_shares_of_classes_that_move_are_permuted_too() -> None:
    still, moving = planted(0, steps=4, size=1, train=400, test=400), planted(0, steps=4, mix=0.8)
    assert [visits_of(one).mixes() for one in (still, moving)] == [False, True]


def judged(stream: Stream, learners: Any = "nearest-mean", draws: int = 5, **more: Any) -> tuple[Results, list[Net]]:
    results = controlled(evaluate(stream, "clear-iid", learners), learners, control=draws, **more)
    nets = nets_of(results.runs, results.control, groups_of(stream))
    return results, [net for net in nets if net is not None]


def test_columns_add_up_and_json_says_what_was_judged() -> None:
    results, (net,) = judged(planted(3, steps=4, turns=0.3, mix=0.6))
    parts = net.ageing, net.mix, net.more_data
    assert sum(part.per_year for part in parts) == net.gross.per_year
    assert np.array_equal(sum(part.by_age for part in parts), net.gross.by_age)
    assert net.draws == net.wanted == len(net.placebo) == 5
    said = results["results"][0]["ageing"]
    assert said == net.said()
    assert said["points_per_year"]["value"] == pytest.approx(net.ageing.per_year, abs=1e-6)
    assert json.loads(json.dumps(said)) == said


@given(st.lists(st.floats(-99, 99), min_size=3, max_size=3))
def test_parts_of_any_loss_add_up_exactly(values: list[float]) -> None:
    gross, within, whole = np.round(np.array(values) / GRID) * GRID
    assert (gross - within) + (within - whole) + whole == gross


def test_the_variance_over_samples_is_that_of_the_bootstrap() -> None:
    stream = planted(5, steps=4, turns=0.2)
    runs = evaluate(stream, "clear-iid", "nearest-mean", 2).runs
    weights = np.zeros((4, 4))
    weights[0, 2:], weights[[2, 3], [2, 3]] = -1, 1
    (found,) = over_samples(runs, weights[None], groups_of(stream))
    draw, groups = np.random.default_rng(0), groups_of(stream)
    values = []
    for _ in range(3000):
        weight, value = draw.poisson(1.0, int(groups.max()) + 1), 0.0
        for row in runs[0].rows:
            a = row.answers
            value += weights[row.learned_to, int(row.tested_on)] * np.average(
                a.label == a.predicted, weights=weight[groups[a.sample]]
            )
        values.append(value)
    matrix = np.mean([matrix_of(run) for run in runs], 0)
    assert found.value == pytest.approx(float((weights * matrix).sum()))
    assert found.variance == pytest.approx(np.var(values), rel=0.1)
    (with_a_large_one,) = over_samples(runs, weights[None], np.minimum(groups, 3))
    assert with_a_large_one.free <= 4 < found.free < len(np.unique(groups)), "few groups have most of the variance"


def test_degrees_of_freedom_are_those_of_welch() -> None:
    a, b = np.array([1.0, 2.5, 3.0, 4.5]), np.array([0.0, 4.0, 9.0])
    parts = [(float(np.var(x, ddof=1)) / len(x), len(x) - 1) for x in (a, b)]
    band, p = interval(float(a.mean() - b.mean()), parts)
    other = stats.ttest_ind(a, b, equal_var=False)
    assert p == pytest.approx(other.pvalue)
    assert [float(band.low), float(band.high)] == pytest.approx(list(other.confidence_interval()))


@pytest.mark.parametrize("value", [0.5, 3.0, 5.0, 12.0])
def test_an_interval_holds_each_truth_that_the_value_does_not_contradict(value: float) -> None:
    """The twin: all truths on a grid, with a variance that is linear up to 1.5 times the value."""
    free, at_zero, at_value = 10, 1.0, 3.0
    band, p = interval(value, [(at_zero, free)], at=([(at_value, free)], at_value))
    truths = np.linspace(-5, 20, 100_001)
    variance = at_zero + (at_value - at_zero) * np.clip(truths / value, 0, 1.5)
    held = truths[abs(value - truths) <= stats.t.ppf(0.975, free) * np.sqrt(variance)]
    assert [float(band.low), float(band.high)] == pytest.approx([held.min(), held.max()], abs=1e-3)
    assert p == pytest.approx(2 * stats.t.sf(value, free))


def test_models_that_age_vary_more_with_their_training_samples_than_the_control() -> None:
    results, (net,) = judged(planted(3, steps=6, turns=0.1, size=1), draws=20)
    value, low, high = net.said()["points_per_year"].values()
    assert high - value > 1.2 * (value - low) > 0
    control = replace(results.control, draws=[draw for draw in results.control.draws if draw.kind != "half"])
    (net,) = nets_of(results.runs, control, None)
    assert net.because == "Its control has no models of half the training visits: evaluate again."


def test_half_of_the_training_visits_are_whole_visits_of_all_classes() -> None:
    step = planted(2).steps[0]
    half = halved(step, np.random.default_rng(0))
    whole, rest = (np.unique(one["train"].group, return_counts=True) for one in (step, half))
    assert len(rest[0]) == len(whole[0]) / 2
    assert set(rest[1]) == set(whole[1]) == {3}
    shares = [np.bincount(one["train"].y) / len(one["train"]) for one in (step, half)]
    assert np.abs(shares[0] - shares[1]).max() <= 0.1
    assert half["test"] is step["test"]
    full, part = (
        evaluate(planted(2, steps=3), kind, "nearest-mean").runs[0] for kind in (Streaming(), HalfStreaming())
    )
    assert [row.n for row in full.rows] == [row.n for row in part.rows]
    assert [row.seen for row in full.rows] == [2 * row.seen for row in part.rows]


def test_equal_data_is_what_a_method_loses_that_cannot_profit_from_more() -> None:
    stream = planted(4, steps=4, turns=0.2)
    _, (mean, fresh) = judged(stream, ["nearest-mean", Fresh], equal_data=True)
    assert mean.equal_data == pytest.approx(fresh.gross.per_year)
    assert fresh.equal_data == pytest.approx(fresh.gross.per_year)


def test_models_of_equal_data_learn_the_newest_whole_visits() -> None:
    stream = small()
    short = replace(
        stream.steps[0], splits={**stream.steps[0].splits, "train": stream.steps[0]["train"].take(range(9))}
    )
    rows = evaluate(replace(stream, steps=[short, *stream.steps[1:]]), EqualIid(), "nearest-mean").runs[0].rows
    assert {row.seen for row in rows} == {9}


def test_runs_of_a_control_are_found_again_and_missing_draws_are_shown(tmp_path: Path) -> None:
    stream, out = planted(6, steps=4), tmp_path / "runs"
    results = controlled(evaluate(stream, "clear-iid", "nearest-mean", out=out), "nearest-mean", out=out)
    first = {path: path.read_bytes() for path in out.rglob("loss.json")}
    assert len(first) == 20 + 10
    shutil.rmtree(out / "control" / "within-3")
    (document,) = results_of([out])
    assert "19 of 20 permutations are there" in document["results"][0]["net"].because
    again = controlled(evaluate(stream, "clear-iid", "nearest-mean", out=out), "nearest-mean", out=out)
    assert again["results"][0]["ageing"] == results["results"][0]["ageing"]
    assert {path: path.read_bytes() for path in out.rglob("loss.json")} == first
    (document,) = results_of([out])
    assert document["results"][0]["net"].said() == results["results"][0]["ageing"]
    assert len(document["results"]) == len(folders([out])) == 1


@pytest.mark.parametrize("setting", ["epochs", "nap.epochs", "finetune.epochs"])
def test_settings_of_learners_without_a_control_stay_out_of_it(setting: str) -> None:
    stream, learners = small(), ["nearest-mean", "nap", "finetune"]
    settings = {setting: 1}
    results = controlled(evaluate(stream, "clear-iid", learners, settings=settings), learners, settings)
    assert {draw.key.split('"')[1] for draw in results.control.draws} == {"nearest-mean"}


def test_groups_are_numbers_beside_predictions_so_that_the_stream_is_not_needed(tmp_path: Path) -> None:
    stream = planted(7, steps=3)
    evaluate(stream, "clear-iid", "nearest-mean", out=tmp_path)
    runs, known = find([tmp_path])[0], groups_of(stream)
    read, tested = groups_in(runs), np.unique(np.concatenate([row.answers.sample for row in runs[0].rows]))
    assert np.array_equal(read[tested], known[tested])
    assert "uploaders" not in results_of([tmp_path])[0]
    bare = replace(stream, steps=[replace(s, splits={n: replace(x, group=None) for n, x in s.splits.items()})
                                  for s in stream], sha256="bare")  # fmt: skip
    evaluate(bare, "clear-iid", "nearest-mean", out=tmp_path / "bare")
    assert results_of([tmp_path / "bare"])[0]["uploaders"] == "not known"


def test_what_never_learned_again_and_what_has_no_dates_is_not_known() -> None:
    _, (net,) = judged(planted(0, steps=4), "nap")
    assert (net.is_, net.because) == ("not known", "It never learned again, so that no newer model of it is tested.")
    undated = drifting()
    (net,) = nets_of(evaluate(undated, "clear-iid", "nearest-mean").runs, NO_CONTROL, None)
    assert net.points_per_year is None


def test_what_never_trained_does_not_age() -> None:
    run = evaluate(planted(0, steps=3), "clear-iid", "nearest-mean").runs[0]
    asleep = Run(run.about, [replace(row, last_change=-1) for row in run.rows])
    net = net_of([asleep], NO_CONTROL, None)
    assert (net.is_, net.because) == ("none", "It never trained.")
    assert net.said()["points_per_year"] == {"value": 0.0, "low": 0.0, "high": 0.0}


def test_without_a_control_the_word_is_not_used() -> None:
    results, (net,) = judged(planted(0, steps=3), draws=0)
    assert results["results"][0]["ageing"] == {"is": "not known", "points_per_year": None,
                                               "because": "There is no control."}  # fmt: skip
    assert np.isnan(net.ageing.per_year)
    assert np.isfinite(net.gross.per_year)


def test_no_ageing_is_said_only_where_the_interval_ends_below_a_point_a_year() -> None:
    nets = [judged(planted(0, steps=steps))[1][0] for steps in (3, 4)]
    found = [(net.is_, round(net.said()["points_per_year"]["high"], 1)) for net in nets]
    assert found == [("none", 0.7), ("not known", 8.7)]


def test_holm_over_those_that_are_named() -> None:
    _, (net,) = judged(planted(3, steps=4, turns=0.3))
    named = [replace(net, is_="ageing", p=p) for p in (0.04, 0.01, 0.03)]
    assert [one.is_ for one in holm_named(named)] == ["not known", "ageing", "not known"]
    assert holm_named(named[1:2])[0].is_ == "ageing"


@pytest.mark.parametrize("draws", [-1, 1, 4])
def test_too_few_draws_are_refused(draws: int) -> None:
    with pytest.raises(BadConfig, match="Expected 0 for none, or at least 5 draws"):
        check_draws(draws)


def test_the_smallest_ageing_grows_with_groups_and_falls_with_steps() -> None:
    found = [smallest_ageing(planted(0, **more)) for more in ({"size": 1}, {"size": 6}, {"size": 1, "steps": 5})]
    least = [one.points_per_year for one in found if one is not None]
    assert least[0] < least[1] < least[2]
    assert "with 60 tests, 10 groups a step, ageing below 1." in found[1].text()
    assert smallest_ageing(drifting()) is None


def test_cadences_are_means_of_the_matrix_over_the_same_tests() -> None:
    stream = planted(1, steps=6, turns=0.2)
    run = evaluate(stream, "clear-iid", "nearest-mean").runs[0]
    r = matrix_of(run)
    by_hand = [np.mean([np.mean([r[j - age, j] for age in range(k)]) for j in range(1, 6)]) for k in (1, 2)]
    found = retrain_every([run], groups_of(stream), (1, 2))
    assert [float(one.accuracy.value) for one in found] == pytest.approx(by_hand)
    assert [float(one.behind.value) for one in found] == pytest.approx([0, by_hand[0] - by_hand[1]])
    assert retrain_every(evaluate(stream, "clear-iid", "nap").runs, None) == []
    late = evaluate(planted(1, steps=8), "clear-streaming", "nearest-mean").runs  # nothing is tested on the first step
    assert [one.every for one in retrain_every(late, None)] == [1, 2], "4 steps are more than half of 7"


def test_harder_data_is_one_number_beyond_the_control() -> None:
    stream = planted(2, steps=5, harder=0.5, size=1)
    results, _ = judged(stream, ["nearest-mean", "majority"])
    found = harder_data(results.runs, results.control, None)
    assert float(found.low) > 0
    assert harder_data(results.runs, NO_CONTROL, None) is None


def test_harder_data_where_each_seed_tests_other_samples() -> None:
    stream, settings = planted(8, steps=4, size=1), {"splits": "seeded"}
    results = evaluate(stream, "clear-iid", "nearest-mean", [0, 1, 2, 3], settings=settings)
    results = controlled(results, "nearest-mean", settings, control=5)
    assert harder_data(results.runs, results.control, groups_of(stream)) is not None


def test_a_control_of_other_sides_is_another_one(tmp_path: Path) -> None:
    stream, how = planted(8, steps=4, size=1), {"control": 5, "out": tmp_path}
    for settings in ({}, {"splits": "seeded"}):
        results = evaluate(stream, "clear-iid", "nearest-mean", settings=settings, out=tmp_path)
        controlled(results, "nearest-mean", settings, **how)
    assert len(list(tmp_path.rglob("loss.json"))) == 2 * (5 + 5)
    one, other = results_of([tmp_path])[0]["results"]
    assert [one["net"].draws, other["net"].draws] == [5, 5]
    assert one["net"].ageing.per_year != other["net"].ageing.per_year


def test_clear_streaming_is_behind_the_newest_model_that_has_a_test() -> None:
    stream = planted(9, steps=4, turns=0.2)
    results = controlled(evaluate(stream, "clear-streaming", "nearest-mean"), "nearest-mean", control=5)
    r = matrix_of(results.runs[0])
    pairs = [(0, 1, 2), (0, 2, 3), (1, 2, 3)]  # old, newest, test
    ages = np.array([1, 2, 1])
    by_hand = 100 * sum(a * (r[new, j] - r[old, j]) for a, (old, new, j) in zip(ages, pairs, strict=True)) / 6
    (net,) = nets_of(results.runs, results.control, groups_of(stream))
    assert net.gross.per_year == pytest.approx(by_hand, rel=0.02)  # years are not quite equal
    assert results["results"][0]["ageing"] == net.said()
    assert net.said()["points_per_year"]["value"] == pytest.approx(net.ageing.per_year, abs=1e-6)
