"""Measures of other papers by hand, intervals against scipy, and the grid in processes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import bootstrap, ttest_rel
from support.helpers import drifting, few_of

from driftline.curate.core.seeding import rng_for
from driftline.eval.protocol import PROTOCOLS
from driftline.eval.protocols.clear import MEASURES as BY_SCORE
from driftline.eval.reporting.protocols import page_of
from driftline.eval.rows import Answers, Row, Run, counted, groups
from driftline.eval.run import evaluate
from driftline.eval.scoring.aggregate import _over_samples, _spread, summary
from driftline.eval.scoring.bands import half_width, holm, wilson
from driftline.eval.scoring.comparing import Comparison, compare, score_of
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
    of = [Run({"protocol": protocol, "stream": {}}, list(rows))]
    return next(iter(_over_samples(PROTOCOLS[protocol](), of, lambda: score_of(of, draws_of(of)), "").values()))


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
        ("near-future", {}, "not the stream"),
        ("seq-to-final", {}, "they are the same for every seed"),
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


# ---- paired tests, ties, ranks, slices: against statsmodels, scipy and known answers


Right = npt.NDArray[np.bool_]


def made(right: dict[str, Right], start: int = 0) -> list[Run]:
    """Runs of clear-streaming with two steps, hence one test. right: learner → (S, N)."""
    about: dict[str, Any] = {
        "protocol": "clear-streaming", "settings": {}, "protocol_settings": {}, "steps": 2, "stored_bytes": 0,
        "stream": {"name": "s", "sha256": "s"}, "gradient_steps": 0, "seconds": 0.0,
    }  # fmt: skip
    runs = []
    for learner, of_seeds in right.items():
        for seed, hits in enumerate(of_seeds):
            label = np.arange(len(hits), dtype=np.uint8) % 2
            answers = Answers(np.arange(len(hits)) + start, label, np.where(hits, label, 1 - label))
            row = Row("1", len(hits), int(hits.sum()), 0, answers=answers)
            runs.append(Run({**about, "learner": learner, "seed": seed}, [row]))
    return runs


def compared(right: dict[str, Right], **more: Any) -> Comparison:
    return compare(groups(made(right)), **more)


def drawn(shares: dict[str, float], seeds: int, n: int) -> dict[str, Right]:
    rng = np.random.default_rng(0)
    return {name: rng.random((seeds, n)) < share for name, share in shares.items()}


@settings(max_examples=25)
@given(st.lists(st.floats(0, 1), min_size=6, max_size=6))
def test_holm_is_that_of_statsmodels(values: list[float]) -> None:
    from statsmodels.stats.multitest import multipletests

    with patch("gc.collect"):  # it looks through all objects of the process in each call: a fifth of a second
        theirs = multipletests(values, method="holm")[1]
    assert np.allclose(holm(np.array(values)), theirs)


class TestDifferences:
    def test_one_seed_is_not_testable(self) -> None:
        found = compared(drawn({"a": 0.9, "b": 0.5}, 1, 2000))
        assert np.isnan(found.p_score[0, 1])
        assert found.ties == ()
        assert found.difference.low[0, 1] > 0, "of these two models, on other samples"

    def test_the_interval_of_a_score_is_wilsons(self) -> None:
        found, ends = compared(dict.fromkeys("ab", np.arange(200)[None] < 184)).score, wilson(*np.array([0.92, 200]))
        assert (found.low[0], found.high[0]) == pytest.approx(ends, abs=0.003), "0.882 to 0.958 if it were symmetric"

    def test_two_seeds_tell_apart_what_test_samples_decide(self) -> None:
        assert compared(drawn({"a": 0.9, "b": 0.5}, 2, 2000)).p_score[0, 1] < 0.05
        rates = {"a": (0.9, 0.6), "b": (0.7, 0.55)}
        right = {name: np.arange(2000) < 2000 * np.array([of]).T for name, of in rates.items()}
        assert compared(right).p_score[0, 1] > 0.05, "seeds differ as much as the learners"

    def test_seeds_that_change_no_answer_are_a_paired_test_over_samples(self) -> None:
        right = {name: np.repeat(hits, 2, 0) for name, hits in drawn({"a": 0.80, "b": 0.77}, 1, 800).items()}
        expected = ttest_rel(right["a"][0].astype(float), right["b"][0].astype(float))
        found = compared(right)
        assert found.p_score[0, 1] == pytest.approx(expected.pvalue, rel=0.2)
        ends, band = expected.confidence_interval(), found.difference
        assert (band.low[0, 1], band.high[0, 1]) == pytest.approx((ends.low, ends.high), rel=0.1)

    def test_93_against_83_of_300_tests_differ_with_three_seeds(self) -> None:
        """The deciding samples are 30 to 0 in each seed: how seeds differ is nearly nothing, and known well enough."""
        base, rng = np.arange(300) < 280, np.random.default_rng(0)
        worse = base & (np.arange(300) >= 30)
        right = {name: np.stack([of ^ (rng.random(300) < 0.005) for _ in range(3)]) for name, of in
                 (("a", base), ("b", worse))}  # fmt: skip
        assert compared(right).p_score[0, 1] < 0.01

    @pytest.mark.parametrize(("seeds", "sd", "common"), few_of(
        [(2, 0.0, True), (2, 0.03, True), (2, 0.1, True), (3, 0.0, True), (3, 0.03, True), (3, 0.03, False),
         (5, 0.03, True)],
        [(2, 0.1, True), (3, 0.03, False), (5, 0.03, True)], "statistics"))  # fmt: skip
    def test_equal_learners_are_told_apart_in_at_most_six_per_cent(self, seeds: int, sd: float, common: bool) -> None:
        """Seeds move a learner by `sd`; common: samples are hard or easy for all seeds. 300 worlds, and 1.6 standard
        deviations."""
        rng, alarms = np.random.default_rng([seeds, int(100 * sd), common]), 0
        for _ in range(300):
            hard = rng.normal(size=150) * common
            right = {
                name: hard + rng.normal(size=(seeds, 150)) < 0.7 + rng.normal(0, 4 * sd, (seeds, 1)) for name in "ab"
            }
            alarms += bool(compared(right).p_score[0, 1] < 0.05)
        assert alarms / 300 <= 0.06 + 1.6 * np.sqrt(0.06 * 0.94 / 300)

    def test_seeds_that_differ_much_are_a_paired_test_over_seeds(self) -> None:
        rates = {"a": np.array([0.5, 0.6, 0.7, 0.8, 0.9]), "b": np.array([0.55, 0.5, 0.65, 0.6, 0.8])}
        rng = np.random.default_rng(0)
        right = {name: rng.random((5, 5000)) < rate[:, None] for name, rate in rates.items()}
        found = compared(right)
        expected = ttest_rel(*(right[name].mean(1) for name in "ab")).pvalue
        assert found.p_score[0, 1] == pytest.approx(expected, rel=0.3)

    def test_predictions_of_one_seed_are_mcnemars_test(self) -> None:
        from statsmodels.stats.contingency_tables import mcnemar as reference_mcnemar

        right = drawn({"a": 0.8, "b": 0.79}, 1, 3000)
        a, b = right["a"][0], right["b"][0]
        table = [[(a & b).sum(), (a & ~b).sum()], [(~a & b).sum(), (~a & ~b).sum()]]
        found = compared(right)
        expected = reference_mcnemar(table, exact=False, correction=False).pvalue
        assert found.p_predictions[0, 1] == found.p_predictions[1, 0] == pytest.approx(expected, rel=0.05)

    def test_predictions_of_one_uploader_count_once(self) -> None:
        right = drawn({"a": 0.8, "b": 0.7}, 1, 100)
        copies = {name: np.repeat(hits, 5, 1) for name, hits in right.items()}
        together, alone = (compared(copies, clusters=of) for of in (np.arange(500) // 5, None))
        assert together.p_predictions[0, 1] == pytest.approx(compared(right).p_predictions[0, 1])
        assert alone.p_predictions[0, 1] < together.p_predictions[0, 1]

    def test_samples_of_one_uploader_are_one_in_the_p_of_means(self) -> None:
        """Five copies of each sample tell no more than one, where seeds change no answer."""
        right = {name: np.repeat(hits, 2, 0) for name, hits in drawn({"a": 0.8, "b": 0.7}, 1, 100).items()}
        copies = {name: np.repeat(hits, 5, 1) for name, hits in right.items()}
        together, alone = (compared(copies, clusters=of) for of in (np.arange(500) // 5, None))
        assert together.p_score[0, 1] == pytest.approx(compared(right).p_score[0, 1], rel=0.2)
        assert alone.p_score[0, 1] < together.p_score[0, 1] / 3

    def test_predictions_of_several_seeds_count_once(self) -> None:
        right = drawn({"a": 0.8, "b": 0.7}, 1, 100)
        copies = {name: np.repeat(hits, 3, 0) for name, hits in right.items()}
        assert compared(copies).p_predictions[0, 1] == pytest.approx(compared(right).p_predictions[0, 1])

    def test_equal_answers_do_not_differ(self) -> None:
        hits = np.random.default_rng(0).random((3, 100)) < 0.7
        found = compared({"a": hits, "b": hits})
        assert found.p_score[0, 1] == found.p_predictions[0, 1] == found.adjusted[0, 1] == 1
        assert found.ties == ((0, 1),)

    def test_other_seeds_are_not_paired(self) -> None:
        runs = made(drawn({"a": 0.9, "b": 0.5}, 2, 100))
        runs[-1].about["seed"] = 7
        found = compare(groups(runs))
        assert np.isnan(found.p_score[0, 1])
        assert np.isnan(found.p_predictions[0, 1])
        runs[-1].about["seed"] = 1
        assert np.isnan(compare([runs[:2], runs[:1:-1]]).p_score[0, 1]), "nor the same seeds in another order"

    def test_two_seeds_that_agree_by_luck_prove_little(self) -> None:
        """Both are wrong on 30 of 100 samples, each on others."""
        wrong = np.array([np.arange(100) < 30, np.arange(100) >= 70])
        found = compared({"a": np.ones((2, 100), bool), "b": ~wrong})
        assert found.p_score[0, 1] > 1e-3

    def test_learners_on_other_samples_are_compared_without_pairs(self) -> None:
        right = drawn({"a": 0.9, "b": 0.5}, 3, 100)
        found = compare(groups(made({"a": right["a"]}) + made({"b": right["b"]}, 50)))
        assert found.p_score[0, 1] < 0.01

    def test_tests_of_few_samples_of_which_a_replicate_may_draw_none_prove_nothing(self) -> None:
        label = np.zeros(2, np.uint8)
        about = made({"a": np.ones((1, 2), bool)})[0].about | {"steps": 10, "protocol": "clear-iid"}
        runs = []
        for learner, wrong in (("a", 0), ("b", 1)):  # b loses one of 18 samples
            rows = []
            for t in range(1, 10):
                answers = Answers(np.arange(2) + 2 * t, label, np.array([wrong if t == 4 else 0, 0], np.uint8))
                right = int((answers.predicted == label).sum())
                rows.append(Row(str(t), 2, right, t - 1, answers=answers))
            runs += [Run({**about, "learner": learner, "seed": seed}, rows) for seed in (0, 1)]
        found = compare(groups(runs))
        assert found.p_score[0, 1] > 0.2
        assert found.ties == ((0, 1),)


class TestStepsOfOneSample:
    """A step whose only test sample no replicate may draw, or that is left out with its cluster."""

    @staticmethod
    def on(protocol: str, *sizes: int) -> Comparison:
        """Two learners on four steps with so many test samples each."""
        whole = drifting(steps=4, n=80, noise=2.5)
        steps = [
            replace(step, splits={**step.splits, "test": step["test"].part(0, n)})
            for step, n in zip(whole.steps, sizes, strict=False)
        ]
        stream = replace(whole, steps=steps, sha256=f"{sizes}")
        settings: dict[str, Any] = {"scenario": "temporal"} if protocol == "ocrr" else {}
        runs = evaluate(stream, protocol, ["nearest-mean", "majority"], [0, 1, 2], settings).runs
        return compare(groups(runs))

    @pytest.mark.filterwarnings("error::RuntimeWarning")
    def test_it_makes_intervals_wider(self) -> None:
        one, many = self.on("clear-iid", 40, 1, 30, 20), self.on("clear-iid", 40, 25, 30, 20)
        assert (one.score.high - one.score.low > 1.25 * (many.score.high - many.score.low)).all()
        gap = one.difference.high - one.difference.low
        assert gap[0, 1] > 1.25 * (many.difference.high - many.difference.low)[0, 1]
        assert one.p_score[0, 1] > many.p_score[0, 1]

    @pytest.mark.filterwarnings("error::RuntimeWarning")
    def test_the_worst_of_two_tests_is_that_which_was_drawn(self) -> None:
        comparison = self.on("ocrr", 40, 30, 20, 1)
        assert np.isfinite([comparison.score.low, comparison.score.high]).all()
        assert (comparison.score.high - comparison.score.low > 0.2).all()

    def test_one_sample_in_all_proves_nothing_and_is_not_certain(self) -> None:
        result = self.on("clear-iid", 40, 1)
        assert np.isnan([result.score.low, result.score.high]).all()
        assert np.isnan([result.p_score[0, 1], result.difference.low[0, 1], result.difference.high[0, 1]]).all()

    def test_a_pair_of_which_one_is_right_on_the_only_sample_is_not_significant(self) -> None:
        comparison = compared({"right": np.ones((3, 1), bool), "wrong": np.zeros((3, 1), bool)})
        assert comparison.difference.value[0, 1] == 1
        assert np.isnan(comparison.adjusted[0, 1])


class TestRanking:
    def test_groups_that_do_not_differ(self) -> None:
        found = compared(drawn({"low": 0.5, "high": 0.9, "as high": 0.9}, 3, 4000))
        assert found.ties[0] == tuple(np.argsort(-found.score.value)[:2].tolist())
        assert set(found.ties[0]) == {1, 2}
        assert found.ties[1] == (0,)


@pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
def test_the_score_of_the_decisive_tests_is_the_primary_score(protocol: str) -> None:
    stream, kept = drifting(classes=6, n=120), []
    learners, settings = {
        "near-future": (["fc-only"], {"batch": 20, "shift": 40}),
        "seq-to-final": (["ft"], {"val_share": 0.2, "epochs": 2, "lrs": 0.001}),
        "ocrr": (["substrate"], {"every": 20}),
    }.get(protocol, (["nearest-mean", "nap"], {}))
    evaluate(stream, protocol, learners, [0, 1], settings, keep_run=kept.append)
    found = compare(groups(kept))
    document = summary(kept, stream.name, stream.sha256, protocol)
    kind = PROTOCOLS[protocol]
    name = kind.primary or next(iter(document["results"][0]["scores"]))
    assert np.allclose(found.score.value, [result["scores"][name]["mean"] for result in document["results"]])


def test_runs_without_predictions_are_not_compared() -> None:
    runs = made(drawn({"a": 0.9}, 1, 10))
    assert compare([[Run(run.about, [replace(row, answers=None) for row in run.rows])] for run in runs]) is None
