"""Paired tests, ties, ranks, slices: against statsmodels, scipy and known answers."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_rel
from support.helpers import drifting

from driftline.eval.protocol import PROTOCOLS
from driftline.eval.rows import Answers, Row, Run, groups
from driftline.eval.run import evaluate
from driftline.eval.scoring.aggregate import summary
from driftline.eval.scoring.bands import holm
from driftline.eval.scoring.comparing import Comparison, compare

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
    found = compare(groups(made(right)), **more)
    assert found is not None
    return found


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
        assert compared(right).p_score[0, 1] < 0.001

    @pytest.mark.parametrize(("seeds", "sd", "common"), [(2, 0.0, True), (2, 0.03, True), (2, 0.1, True),
                                                         (3, 0.0, True), (3, 0.03, True), (3, 0.03, False),
                                                         (5, 0.03, True)])  # fmt: skip
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

    def test_outcomes_of_one_seed_are_mcnemars_test(self) -> None:
        from statsmodels.stats.contingency_tables import mcnemar as reference_mcnemar

        right = drawn({"a": 0.8, "b": 0.79}, 1, 3000)
        a, b = right["a"][0], right["b"][0]
        table = [[(a & b).sum(), (a & ~b).sum()], [(~a & b).sum(), (~a & ~b).sum()]]
        found = compared(right)
        expected = reference_mcnemar(table, exact=False, correction=False).pvalue
        assert found.p_outcomes[0, 1] == found.p_outcomes[1, 0] == pytest.approx(expected, rel=0.05)

    def test_outcomes_of_one_uploader_count_once(self) -> None:
        right = drawn({"a": 0.8, "b": 0.7}, 1, 100)
        copies = {name: np.repeat(hits, 5, 1) for name, hits in right.items()}
        together, alone = (compared(copies, clusters=of) for of in (np.arange(500) // 5, None))
        assert together.p_outcomes[0, 1] == pytest.approx(compared(right).p_outcomes[0, 1])
        assert alone.p_outcomes[0, 1] < together.p_outcomes[0, 1]

    def test_samples_of_one_uploader_are_one_in_the_p_of_means(self) -> None:
        """Five copies of each sample tell no more than one, where seeds change no answer."""
        right = {name: np.repeat(hits, 2, 0) for name, hits in drawn({"a": 0.8, "b": 0.7}, 1, 100).items()}
        copies = {name: np.repeat(hits, 5, 1) for name, hits in right.items()}
        together, alone = (compared(copies, clusters=of) for of in (np.arange(500) // 5, None))
        assert together.p_score[0, 1] == pytest.approx(compared(right).p_score[0, 1], rel=0.2)
        assert alone.p_score[0, 1] < together.p_score[0, 1] / 3

    def test_outcomes_of_several_seeds_count_once(self) -> None:
        right = drawn({"a": 0.8, "b": 0.7}, 1, 100)
        copies = {name: np.repeat(hits, 3, 0) for name, hits in right.items()}
        assert compared(copies).p_outcomes[0, 1] == pytest.approx(compared(right).p_outcomes[0, 1])

    def test_equal_answers_do_not_differ(self) -> None:
        hits = np.random.default_rng(0).random((3, 100)) < 0.7
        found = compared({"a": hits, "b": hits})
        assert found.p_score[0, 1] == found.p_outcomes[0, 1] == found.adjusted[0, 1] == 1
        assert found.ties == ((0, 1),)

    def test_other_seeds_are_not_paired(self) -> None:
        runs = made(drawn({"a": 0.9, "b": 0.5}, 2, 100))
        runs[-1].about["seed"] = 7
        found = compare(groups(runs))
        assert found is not None
        assert np.isnan(found.p_score[0, 1])
        assert np.isnan(found.p_outcomes[0, 1])

    def test_learners_on_other_samples_are_compared_without_pairs(self) -> None:
        right = drawn({"a": 0.9, "b": 0.5}, 3, 100)
        found = compare(groups(made({"a": right["a"]}) + made({"b": right["b"]}, 50)))
        assert found is not None
        assert found.p_score[0, 1] < 0.01

    def test_false_alarms_are_rare(self) -> None:
        rng = np.random.default_rng(1)
        alarms = 0
        for _ in range(150):
            rates = np.clip(0.7 + rng.normal(0, 0.05, (2, 3)), 0, 1)
            right = {name: rng.random((3, 200)) < rates[k][:, None] for k, name in enumerate("ab")}
            alarms += bool(compared(right).p_score[0, 1] < 0.05)
        assert alarms <= 14  # 5 % of 150, and 2.5 standard deviations

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
        assert found is not None
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
        comparison = compare(groups(runs))
        assert comparison is not None
        return comparison

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
    assert found is not None
    assert np.allclose(found.score.value, [result["scores"][name]["mean"] for result in document["results"]])


def test_runs_without_outcomes_are_not_compared() -> None:
    runs = made(drawn({"a": 0.9}, 1, 10))
    assert compare([[Run(run.about, [replace(row, answers=None) for row in run.rows])] for run in runs]) is None
