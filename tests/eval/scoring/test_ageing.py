"""How models age: constructed matrices with known answers, properties, and real runs."""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.helpers import drifting, grouped
from support.worlds import heavy_groups

from driftline.curate.core.errors import IncompatibleStream
from driftline.eval import predictions, rows
from driftline.eval.learner import Learner, Task
from driftline.eval.predictions import groups_of
from driftline.eval.rows import Answers, Row, Run
from driftline.eval.run import evaluate
from driftline.eval.scoring.ageing import Ageing, ageing
from driftline.eval.scoring.aggregate import summary
from driftline.eval.scoring.bands import Band, quantiles
from driftline.eval.scoring.decay import falling, first_below, left_over, pairs_of, slope
from driftline.eval.scoring.sums import Draws, Resampling, drawn, draws_of, summed
from driftline.eval.timeline import timeline

YEAR = 365.2425 * 86400
ABOUT: dict[str, Any] = {
    "protocol": "clear-iid", "learner": "er", "settings": {}, "protocol_settings": {}, "seed": 0,
    "stream": {"name": "s", "sha256": "s"}, "stored_bytes": 0, "gradient_steps": 0, "seconds": 0.0,
}  # fmt: skip


def counted(
    accuracy: Callable[[int, int, int], float | None], steps: int = 5, classes: int = 2, n: int = 1000,
    share: Callable[[int], npt.NDArray[np.float64]] | None = None, years: float | None = None, seeds: int = 1,
) -> list[Run]:  # fmt: skip
    """Runs whose rows have the accuracy of (trained, tested, class); None: not tested. share: of classes in a step."""
    made = []
    for i in range(steps):
        for j in range(steps):
            shares = np.full(classes, 1 / classes) if share is None else share(j)
            shown = [accuracy(i, j, c) for c in range(classes)]
            if None in shown:
                continue
            class_n = [round(n * classes * float(s)) for s in shares]
            right = [round(m * float(a or 0)) for m, a in zip(class_n, shown, strict=True)]
            label = np.repeat(np.arange(classes), class_n).astype(np.uint8)
            hits = np.concatenate([np.arange(m) < k for m, k in zip(class_n, right, strict=True)])
            answers = Answers(np.arange(len(label)) + j * 10**6, label, np.where(hits, label, classes).astype(np.uint8))
            made.append(Row(str(j), len(label), sum(right), i, last_change=i, answers=answers))
    dates = {} if years is None else {"dates": [round(t * years * YEAR) for t in range(steps)]}
    about = {"steps": steps, "timeline": {"names": [f"step {t}" for t in range(steps)], **dates}}
    return [Run({**ABOUT, **about, "seed": seed}, made) for seed in range(seeds)]


def one(runs: list[Run], **more: Any) -> Ageing:
    """Of a single learner."""
    (found,) = ageing(runs, **more)
    return found


def fresh(found: Ageing) -> Band:
    """Of newly trained models."""
    return found.curve.accuracy[0]


def decaying(rate: float, classes: int = 2) -> Callable[[int, int, int], float]:
    """0.9 when it was trained, and then the excess over chance decays; the past is as the present."""
    chance = 1 / classes
    return lambda i, j, c: chance + (0.9 - chance) * math.exp(-rate * max(0, j - i))


class TestCurve:
    def test_accuracy_by_age_in_years(self) -> None:
        found = one(counted(decaying(0.5), years=3))
        assert found.timeline.unit == "years"
        assert found.curve.age.round(6).tolist() == [0, 3, 6]
        expected = [0.5 + 0.4 * math.exp(-0.5 * k) for k in range(3)]
        assert np.allclose(found.curve.accuracy.value, expected, atol=1e-3)

    def test_bands_hold_the_value_and_narrow_with_samples(self) -> None:
        widths = []
        for n in (100, 10_000):
            band = one(counted(decaying(0.3), n=n)).curve.accuracy
            assert (band.low <= band.value).all()
            assert (band.value <= band.high).all()
            widths.append(np.mean(band.high - band.low))
        assert widths[0] / widths[1] == pytest.approx(10, rel=0.2)

    def test_bands_of_an_accuracy_are_shares(self) -> None:
        """Of few samples and models that are nearly always right, a symmetric interval ends beyond 1."""
        aged = one(counted(lambda i, j, c: 0.99 - 0.01 * max(0, j - i) - 0.08 * (i == j == 2), n=20))
        assert (aged.curve.accuracy.low >= 0).all()
        assert aged.curve.accuracy.high.max() == 1

    @pytest.mark.parametrize("lacking", [{2}, {0}, {4}, {1, 3}, {0, 1, 2, 3, 4}])
    def test_case_37_a_class_counts_where_it_has_tests(self, lacking: set[int]) -> None:
        """Its level is that of the steps that test it; 0 right of 0 is no accuracy."""
        lacks = np.array([0.5, 0.5, 0])
        found = one(
            counted(
                lambda i, j, c: 0.9 - (0.05 * max(0, j - i) if c == 2 else 0), classes=3,
                share=lambda j: lacks if j in lacking else np.full(3, 1 / 3),
            )
        )  # fmt: skip
        assert np.allclose(found.curve.accuracy_of.value[:2], 0.9)
        if len(lacking) == 5:
            assert len(found.curve.accuracy_of.value) == 2
        else:
            assert np.nanmin(found.curve.accuracy_of.value[2]) >= 0.7 - 1e-9


class TestSlope:
    def test_is_that_of_statsmodels_with_a_level_for_each_model(self) -> None:
        from statsmodels.regression.linear_model import OLS

        r, pairs = np.random.default_rng(0).random((5, 5)), pairs_of(list(product(range(5), repeat=2)), np.arange(5.0))
        i, j = np.triu_indices(5)
        expected = OLS(r[i, j], np.column_stack([j - i, np.eye(5)[i]])).fit().params[0]
        assert slope(r[pairs.model, pairs.tested], pairs, pairs.model) == pytest.approx(expected)
        missing = np.stack([r, np.where(np.eye(5, k=2), np.nan, r)])[:, pairs.model, pairs.tested]
        assert slope(missing, pairs, pairs.model)[0] == pytest.approx(expected)
        assert slope(missing, pairs, pairs.model)[1] != pytest.approx(expected)

    def test_one_test_a_model_has_none(self) -> None:
        found = one(counted(lambda i, j, c: 0.8 if j == i + 1 else None))
        assert np.isnan(found.curve.loss.value)


class TestHalfLife:
    @pytest.mark.parametrize("classes", [2, 5])
    def test_of_exponential_decay(self, classes: int) -> None:
        found = one(counted(decaying(math.log(2) / 3, classes), steps=8, classes=classes, n=20_000, years=2))
        assert found.half_life.value == pytest.approx(6, abs=0.05)
        assert found.half_life.low < 6 < found.half_life.high
        assert found.half_life.reached == 1

    def test_seeds_that_age_differently_widen_it(self) -> None:
        """Five seeds with half-lives about three steps, of many samples; or five times the same."""
        widths = []
        for spread in (0.0, 0.3):
            rates = [math.log(2) / 3 * (1 + spread * k) for k in (-1, -0.5, 0, 0.5, 1)]
            runs = [counted(decaying(rate), steps=8, n=20_000, seeds=5)[s] for s, rate in enumerate(rates)]
            half_life = one(runs).half_life
            widths.append(half_life.high - half_life.low)
        assert widths[1] > 3 * widths[0]

    def test_not_reached(self) -> None:
        found = one(counted(decaying(0.01), years=1))
        assert found.half_life.value == found.half_life.high == math.inf
        assert (found.half_life.reached, round(found.half_life.tested, 6)) == (0, 4)

    def test_reached_in_a_part_of_the_replicates(self) -> None:
        found = one(counted(decaying(math.log(2) / 4), n=200))
        assert 0 < found.half_life.reached < 1
        assert found.half_life.high == math.inf
        assert found.half_life.low < 4

    @pytest.mark.parametrize("old", [0.74, 0.88])
    def test_an_interval_with_one_end_is_that_of_a_bootstrap_in_plain_python(self, old: float) -> None:
        hits, draw, times = lasting(old), random.Random(0), []
        for _ in range(400):
            drawn = [draw.choices(range(100), k=100) for _ in range(3)]  # the same test samples for all models
            share = [sum(n % 2 == 0 for n in numbers) / 100 for numbers in drawn]  # of the constant answer, drawn, too
            above = [
                [sum(map(of.__getitem__, drawn[j])) / 100 - share[j] for j, of in enumerate(model)] for model in hits
            ]
            left = [1, (above[0][1] + above[1][2]) / (above[0][0] + above[1][1]), above[0][2] / above[0][0]]
            below = [k for k in (1, 2) if left[k] <= 0.5]
            k = below[0] if below else 0
            times.append(k - 1 + (left[k - 1] - 0.5) / (left[k - 1] - left[k]) if below else math.inf)
        found = one(answered(hits), resampling=Resampling(2000)).half_life
        assert found.value == found.high == math.inf
        assert found.reached == pytest.approx(sum(map(math.isfinite, times)) / 400, abs=0.08)
        low = sorted(times)[10]  # 2.5 %
        assert found.low == (math.inf if math.isinf(low) else pytest.approx(low, abs=0.1))
        assert math.isinf(low) == (old > 0.8)

    def test_a_constant_answer_has_none(self) -> None:
        found = one(counted(lambda i, j, c: float(c == 0), share=lambda j: np.array([0.6, 0.4])))
        assert np.isnan(found.half_life.value)
        assert found.half_life.why == "never above chance"

    def test_what_comes_back_has_none(self) -> None:
        found = one(counted(lambda i, j, c: (0.9, 0.65, 0.9, 0.9, 0.9)[max(0, j - i)]))
        assert math.isnan(found.half_life.value)
        assert found.half_life.why == "comes back"

    def test_one_point_below_half_by_chance_is_no_half_life(self) -> None:
        """Later ages are above half, but not beyond their intervals."""
        found = one(counted(lambda i, j, c: (0.9, 0.74, 0.69, 0.74, 0.74)[max(0, j - i)], n=30))
        assert found.half_life.why == ""
        assert found.half_life.value == math.inf

    def test_a_bound_and_what_it_would_be_if_the_fall_went_on_are_two_numbers(self) -> None:
        found = one(counted(lambda i, j, c: 0.9 - 0.02 * max(0, j - i), years=1, n=50_000)).half_life
        assert (found.value, round(found.tested, 3)) == (math.inf, 4)
        assert found.extrapolated == pytest.approx(10, abs=0.01)  # half of .4 at .02 a year

    def test_streaming_counts_from_the_first_test(self) -> None:
        rate = math.log(2) / 2
        runs = counted(lambda i, j, c: decaying(rate)(i, j, c) if j > i else None, steps=6, n=50_000)
        assert one(runs).half_life.value == pytest.approx(2, abs=0.02)

    def test_tests_on_the_past_only(self) -> None:
        found = one(counted(lambda i, j, c: 0.8 if j <= i else None))
        assert found.half_life.why == "no later test periods"


class TestOlder:
    def test_harder_data(self) -> None:
        assert np.allclose(one(counted(lambda i, j, c: 0.9 - 0.1 * j)).older.value, 0)

    def test_old_models(self) -> None:
        found = one(counted(lambda i, j, c: 0.9 - 0.1 * abs(j - i)))
        assert np.allclose(found.older.value, [0, 0.1, 0.2, 0.3, 0.4])


def lasting(old: float) -> list[list[list[bool]]]:
    """Right or wrong, by trained step, tested step and sample: 90, then 85 % of 100, and `old` after two steps."""
    rng = random.Random(1)
    shares = [[(0.9, 0.85, old)[max(0, j - i)] for j in range(3)] for i in range(3)]
    return [[rng.sample([n < 100 * share for n in range(100)], 100) for share in row] for row in shares]


def answered(right: Any, classes: int = 2) -> list[Run]:
    """A run with records. right (T, T, N) by trained step, tested step and sample; classes take turns."""
    tests = []
    for i, model in enumerate(np.asarray(right)):
        for j, hits in enumerate(model):
            label = np.arange(len(hits)) % classes
            class_n, correct = (np.bincount(label[part], minlength=classes).tolist() for part in (hits >= 0, hits))
            answers = Answers(
                np.arange(len(hits)) + j * len(hits), label.astype(np.uint8), (label ^ ~hits).astype(np.uint8)
            )
            tests.append(
                Row(
                    str(j), len(hits), int(hits.sum()), i, last_change=i, class_n=class_n, class_correct=correct,
                    answers=answers,
                )
            )  # fmt: skip
    return [Run({**ABOUT, "steps": len(right), "seed": 0}, tests)]


def seeded(right: npt.NDArray[np.bool_]) -> list[Run]:
    """Runs with records: right (S, N), two steps, all cells the same answers; positions 0 … N − 1 and N … 2N − 1."""
    return [
        Run({**run.about, "seed": seed}, run.rows)
        for seed, hits in enumerate(right)
        for run in answered(np.tile(hits, (2, 2, 1)), 1)
    ]


class TestReplicates:
    def test_samples_give_the_binomial_interval(self) -> None:
        rng = np.random.default_rng(0)
        hits = rng.random((1, 2000)) < 0.8
        found = one(seeded(hits), resampling=Resampling(2000))
        half = 1.96 * np.sqrt(hits.mean() * (1 - hits.mean()) / 2000)
        assert (fresh(found).high - fresh(found).low) / 2 == pytest.approx(half, rel=0.06)

    def test_samples_of_one_uploader_count_as_one(self) -> None:
        """Zipf-sized uploaders, one with a third of all, who are always right or always wrong: against a bootstrap of
        uploaders written out."""
        rng, group = np.random.default_rng(0), heavy_groups(2000).group
        right, size = rng.random(group.max() + 1) < 0.8, np.bincount(group)
        drawn = rng.multinomial(len(size), np.full(len(size), 1 / len(size)), 4000)
        low, high = np.quantile((drawn @ (size * right)) / (drawn @ size), [0.025, 0.975])
        alone, together = (
            one(seeded(right[group][None]), resampling=Resampling(4000, groups=g)) for g in (None, np.tile(group, 2))
        )
        assert fresh(together).low == pytest.approx(low, abs=0.02)
        assert fresh(together).high == pytest.approx(high, abs=0.02)
        assert fresh(alone).high - fresh(alone).low < 0.3 * (high - low)
        assert (alone.clustered, together.clustered) == (False, True)

    def test_seeds_give_the_variance_of_their_mean(self) -> None:
        rng = np.random.default_rng(0)
        rates = np.array([0.5, 0.6, 0.7, 0.8, 0.9])
        hits = rng.random((5, 4000)) < rates[:, None]
        found = one(seeded(hits))
        expected = np.std(hits.mean(1), ddof=1) / np.sqrt(5)
        t_of_four = 2.776  # degrees of freedom
        half = (fresh(found).high - fresh(found).low) / 2
        assert half / t_of_four == pytest.approx(expected, rel=0.1)

    def test_differences_of_tests_on_the_same_samples_are_paired(self) -> None:
        hits = np.random.default_rng(0).random((1, 500)) < 0.7
        older = one(seeded(hits)).older
        assert older.low[1] == older.high[1] == 0

    def test_intervals_cover(self) -> None:
        rng = np.random.default_rng(0)
        covered = 0
        for trial in range(100):
            truth = 0.7
            rates = np.clip(truth + rng.normal(0, 0.03, 4), 0, 1)
            found = one(seeded(rng.random((4, 300)) < rates[:, None]), resampling=Resampling(300, trial))
            covered += bool(fresh(found).low <= truth <= fresh(found).high)
        assert 0.91 <= covered / 100 <= 0.99

    def test_runs_without_predictions_have_none(self) -> None:
        runs = seeded(np.random.default_rng(0).random((1, 100)) < 0.8)
        assert ageing([Run(run.about, [replace(row, answers=None) for row in run.rows]) for run in runs]) == [None]

    def test_other_test_samples_of_each_seed(self) -> None:
        runs = seeded(np.random.default_rng(0).random((2, 100)) < 0.8)
        moved = [(row, row.answers) for row in runs[1].rows if row.answers]
        other = [replace(row, answers=replace(a, sample=a.sample + 37)) for row, a in moved]
        found = one([runs[0], Run(runs[1].about, other)])
        assert fresh(found).low < fresh(found).value
        assert fresh(found).value == pytest.approx(fresh(one(runs)).value)


class Once(Learner):
    """Of somebody's own: answers by the nearest class mean of the steps it learned, and says nothing about itself."""

    steps: tuple[int, ...] = (0,)

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        self.task, self.offered = task, 0
        self.means = np.zeros((task.n_classes, *task.x_shape))

    def learn(self, x: Any, y: Any) -> None:
        if self.offered in self.steps:
            self.means = np.stack([x[y == c].mean(0) for c in range(self.task.n_classes)])
        self.offered += 1

    def scores(self, x: Any) -> Any:
        return -((np.asarray(x)[:, None] - self.means) ** 2).sum(-1)


class Sometimes(Once):
    """Learns two of the steps."""

    steps = (0, 2)


class TestModelsThatDoNotLearn:
    def ages(self, learner: Any, protocol: str = "clear-iid") -> tuple[Ageing | None, Run]:
        finished: list[Run] = []
        evaluate(drifting(steps=4, n=300, drift=2.0, noise=1.5), protocol, [learner], keep_run=finished.append)
        return ageing(finished)[0], finished[0]

    @pytest.mark.parametrize("learner", [Once, "nap"])
    @pytest.mark.parametrize("protocol", ["clear-iid", "clear-streaming"])
    def test_a_frozen_model_ages_from_the_step_that_it_learned(self, learner: Any, protocol: str) -> None:
        found, run = self.ages(learner, protocol)
        assert {row.last_change for row in run.rows} == {0}
        assert found.lags.tolist() == ([0, 1, 2, 3] if protocol == "clear-iid" else [1, 2, 3])
        first = [row.n_correct / row.n for row in run.rows if row.learned_to == 0]
        assert found.curve.accuracy.value.tolist() == pytest.approx(first), "of later tests, not flat"
        assert np.isnan(found.older.value[1:]).all(), "no twin was trained at these steps"

    def test_a_model_that_learns_two_steps_is_two_models(self) -> None:
        found, run = self.ages(Sometimes)
        assert [row.last_change for row in run.rows[::4]] == [0, 0, 2, 2]
        assert np.isnan(found.older.value).tolist() == [False, True, False, True]

    def test_a_learner_that_learns_at_every_step_has_a_twin_for_each_test(self) -> None:
        _, run = self.ages("nearest-mean")
        assert all(row.last_change == row.learned_to for row in run.rows)

    def test_a_learner_of_all_steps_at_once_has_no_old_tests(self) -> None:
        found, _ = self.ages("joint(epochs=2)")
        assert found.lags.max() == 0

    def test_what_knows_before_learning_and_never_changes_has_no_age(self) -> None:
        answers = Answers(np.arange(10), np.zeros(10, int), np.arange(10) % 2)
        tests = [Row("0", 10, 5, i, answers=answers) for i in (-1, 0, 1)]
        changes = rows.last_changes(tests, lambda row: 0)
        assert changes == {-1: -1, 0: -1, 1: -1}
        assert rows.new_models([replace(row, last_change=-1) for row in tests], lambda row: 0) == {}

    def test_two_models_that_are_always_right_are_not_taken_for_one(self) -> None:
        answers = Answers(np.arange(10), np.zeros(10, int), np.zeros(10, int))
        assert rows.last_changes([Row("0", 10, 10, i, answers=answers) for i in (0, 1)], lambda row: 0) == {0: 0, 1: 1}

    def test_one_other_confidence_is_a_change(self) -> None:
        def row(i: int, confidence: float) -> Row:
            sure = np.array([0.5] * 5 + [confidence])
            return Row("0", 6, 6, i, answers=Answers(np.arange(6), np.zeros(6, int), np.zeros(6, int), sure))

        assert rows.last_changes([row(0, 0.5), row(1, 0.5), row(2, 0.6)], lambda row: 0) == {0: 0, 1: 0, 2: 2}


class TestChance:
    def test_it_is_that_of_the_class_of_most_training_samples(self) -> None:
        """Not of the most frequent class of each test."""
        stream, steps = drifting(steps=3, classes=2, n=200), []
        for step, sizes in zip(stream.steps, ((30, 20), (5, 40), (60, 5)), strict=True):
            of_class = [np.flatnonzero(step["train"].y == c) for c in (0, 1)]
            drawn = np.concatenate([places[:size] for places, size in zip(of_class, sizes, strict=True)])
            tested = step["test"].take(np.flatnonzero((step["test"].y == 1) | (np.arange(len(step["test"])) % 3 > 0)))
            steps.append(replace(step, splits={**step.splits, "train": step["train"].take(drawn), "test": tested}))
        finished: list[Run] = []
        evaluate(replace(stream, steps=steps), "clear-iid", ["nearest-mean"], keep_run=finished.append)
        assert [row.constant for row in finished[0].rows[::3]] == [0, 1, 0]
        (found,) = ageing(finished)
        share = [float((step["test"].y == 0).mean()) for step in steps]
        pairs = [(i, j) for i in range(3) for j in range(i, 3)]
        assert found.chance == pytest.approx(np.mean([1 - share[j] if i == 1 else share[j] for i, j in pairs]))
        assert found.chance_by == "training"

    def test_it_is_drawn_with_the_test_samples(self) -> None:
        """An answer that is right for class 0 alone is never above chance, in any replicate."""
        right = np.broadcast_to(np.arange(60) % 2 == 0, (2, 2, 60))
        found = one([Run(run.about, [replace(row, constant=0) for row in run.rows]) for run in answered(right)])
        assert found.half_life.why == "never above chance"


class TestTimeline:
    @pytest.mark.parametrize(("seconds", "unit"), [(YEAR, "years"), (YEAR / 12, "months"), (3600, "days")])
    def test_unit(self, seconds: float, unit: str) -> None:
        found = timeline(
            {"steps": 4, "timeline": {"names": list("abcd"), "dates": [int(t * seconds) for t in range(4)]}}
        )
        assert found.unit == unit
        assert found.at == pytest.approx([0, 1, 2, 3] if unit != "days" else [0, 1 / 24, 2 / 24, 3 / 24], abs=1e-6)

    def test_a_run_records_its_steps(self, tmp_path: Path) -> None:
        stream = drifting(steps=3)
        evaluate(stream, "clear-iid", ["nearest-mean"], out=tmp_path)
        (run,) = rows.find([tmp_path])
        assert timeline(run.about).names == ("0", "1", "2")
        assert np.allclose(np.diff(timeline(run.about).dates), 1000)


@pytest.mark.parametrize("protocol", ["clear-iid", "clear-streaming", "near-future"])
def test_runs_of_a_protocol(protocol: str) -> None:
    stream, kept = drifting(n=300, drift=2.0), []
    settings = {"batch": 20, "shift": 40} if protocol == "near-future" else {}
    learner = "fc-only" if protocol == "near-future" else "nearest-mean"
    evaluate(stream, protocol, [learner], [0, 1], settings, keep_run=kept.append)
    found = one(kept)
    assert found.seeds == (0, 1)
    assert (found.lags <= 0).all() if protocol == "near-future" else found.lags.max() == 3
    document = summary(kept, stream.name, stream.sha256, protocol)
    expected = np.array(document["results"][0]["matrix"], float)
    if protocol != "near-future":
        lag, tested = int(found.lags[found.base]), found.curve.tested
        assert fresh(found).value == pytest.approx(expected[tested - lag, tested].mean())
        assert np.isfinite(found.older.value[1:]).tolist() == [True] * (3 - lag)


def test_a_protocol_without_steps_has_none() -> None:
    stream, kept = drifting(classes=6, n=120), []
    evaluate(stream, "ocrr", ["substrate"], settings={"every": 20}, keep_run=kept.append)
    assert ageing(kept) == [None]


def test_groups_are_those_of_the_stream_by_position() -> None:
    stream = drifting(steps=2)
    assert groups_of(stream) is None
    groups, test = groups_of(grouped(stream)), predictions.numbered(stream).steps[1]["test"]
    assert np.array_equal(np.unique(groups[test.position], return_inverse=True)[1], np.arange(len(test)) // 3)


class TestBadInput:
    def test_two_steps_only(self) -> None:
        found = one(counted(lambda i, j, c: 0.9 - 0.3 * max(0, j - i), steps=2))
        assert found.half_life.value == pytest.approx(2 / 3, abs=0.01)
        assert found.curve.loss.value == pytest.approx(0.3)

    def test_a_step_of_one_class_has_nothing_above_chance(self) -> None:
        found = one(counted(lambda i, j, c: 0.9, share=lambda j: np.array([1.0, 0.0])))
        assert found.half_life.why == "never above chance"
        assert np.allclose(found.older.value, 0)

    @pytest.mark.parametrize(
        ("dates", "unit"),
        [
            ([-62_135_596_800, 0, 253_402_300_799], "years"), ([-62_135_596_801, 0, 1], "steps"),
            ([0, 1, 253_402_300_800], "steps"), ([0, 5, 5], "steps"), ([9, 0, 900_000], "steps"),
        ],
    )  # fmt: skip
    def test_dates_are_those_of_the_calendar_in_their_order(self, dates: list[Any], unit: str) -> None:
        """Seconds of the years 1 to 9999."""
        about = {"steps": 3, "stream": {"sha256": "s"}, "timeline": {"names": ["a", "b", "c"], "dates": dates}}
        assert timeline(about).unit == unit


def test_predictions_of_another_stream_are_refused() -> None:
    stream, kept = drifting(), list[Run]()
    evaluate(stream, "clear-iid", ["nearest-mean"], keep_run=kept.append)
    with pytest.raises(IncompatibleStream, match=r"nearest-mean, seed 0, .*version drifting; .*version other"):
        ageing(kept, replace(stream, sha256="other"))


# ---- the parts of ageing against NumPy's functions and plain Python, with tests that were not made (NaN)


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
    answers = Answers(np.arange(200), np.ones(200, bool), hit)
    of = summed([[(answers, cell)]], (cells,), draws)
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
        parts = [[(Answers(np.arange(n), np.ones(n, bool), hit), np.zeros(n, int))] for hit in hits]
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
    of = summed([[(answers, np.zeros(n, int))]], (1,), draws)
    assert draws.groups == 512
    found = drawn(lambda right, n: {"": right[..., 0] / n[..., 0]}, of)[""]
    assert float(found.variances()[0]) == pytest.approx(0.25 / n, rel=0.25)
