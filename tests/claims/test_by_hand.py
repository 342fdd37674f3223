"""Small cases whose result follows by hand: intervals, degrees of freedom, ties, audits."""

import numpy as np
import pytest
from scipy.stats import t as student

from driftline.curate.core.seeding import rng_for
from driftline.curate.release.drift import drift
from driftline.curate.validation.answers.agreement import Votes, dawid_skene
from driftline.eval.protocols.ocrr.protocol import Ocrr
from driftline.eval.rows import Answers as Outcomes
from driftline.eval.rows import Row, Run
from driftline.eval.scoring.bands import half_of
from driftline.eval.scoring.comparing import compare, ties_of
from driftline.eval.scoring.decay import half_life_of
from driftline.eval.scoring.sums import Drawn, combined, draws_of
from driftline.eval.timeline import record
from driftline.stream_builder.builders.sampling import quotas
from driftline.stream_builder.shifts.paper import LabelShift
from driftline.stream_builder.stream import Split, Step, Stream


def test_a_half_life_has_the_middle_95_percent_of_its_replicates() -> None:
    """Accuracy 1 when fresh and v a year later: half is gone after .5 / (1 - v) years; here .5 to 1 in equal steps."""
    times = 0.5 + 0.5 * np.arange(1001) / 1000
    left = np.ones((1001, 2))
    left[:, 1] = 1 - 0.5 / times
    of_one = Drawn(left[500], left, left[:1], np.zeros((0, 1, 2)), 10**9)
    found = half_life_of(of_one, np.array([0.0, 1.0]), True)
    assert (found.value, found.low, found.high) == pytest.approx((0.75, 0.5125, 0.9875), abs=1e-6)
    assert found.reached == 1


def test_p_of_a_difference_is_students_over_seeds_and_samples() -> None:
    """Three seeds on 40 samples: the variance over samples of the mean of the seeds, and that over seeds less what the
    samples of single seeds add to it, which is judged with two degrees of freedom."""
    hits = np.random.default_rng(0).random((2, 3, 40)) < np.array([[0.9, 0.8, 0.6], [0.3, 0.5, 0.4]])[..., None]
    about = {"protocol": "clear-streaming", "settings": {}, "protocol_settings": {}, "steps": 2, "stream": {}}
    runs = []
    for learner, of_seeds in zip("ab", hits, strict=True):
        group = []
        for seed, right in enumerate(of_seeds):
            answers = Outcomes(np.arange(40), np.zeros(40, np.uint8), (~right).astype(np.uint8))
            row = Row("1", 40, int(right.sum()), 0, answers=answers)
            group.append(Run({**about, "learner": learner, "seed": seed}, [row]))
        runs.append(group)
    gap = hits[0].astype(float) - hits[1]  # (S, n)
    of_samples = np.var(gap.mean(0), ddof=1) / 40
    single = gap - gap.mean(0) - gap.mean(1, keepdims=True) + gap.mean()
    of_seeds, of_single = np.var(gap.mean(1), ddof=1) / 3, (single**2).sum() / (2 * 39 * 40) / 3
    assert of_seeds > of_single
    known, differ = of_samples - of_single, int((np.abs(gap.sum(0)) > 0).sum())
    found, error = compare(runs), np.sqrt(known + of_seeds)
    assert found is not None
    half = (found.difference.high - found.difference.low)[0, 1] / 2
    for far, expected in ((gap.mean() / error, found.p_score[0, 1]), (half / error, 0.05)):
        p = 2 * (known * student.sf(far, differ - 1) + of_seeds * student.sf(far, 2)) / error**2
        assert p == pytest.approx(expected, rel=0.1)


def test_seeds_have_their_degrees_of_freedom_and_samples_theirs() -> None:
    """Of samples alone: clusters less one; of seeds alone: seeds less one; of two seeds nothing is subtracted."""
    for variances, freedom in ((0.2, 0.0, 0.0), 40), ((0.0, 0.2, 0.0), 2):
        half = half_of(*combined(*map(np.array, variances), seeds=3), 41, 3)
        assert half == pytest.approx(student.ppf(0.975, freedom) * np.sqrt(0.2))
    assert combined(np.array(0.3), np.array(0.5), np.array(0.1), 3) == pytest.approx((0.7, 0.5 / 0.7))
    assert combined(np.array(0.3), np.array(0.5), np.array(0.1), 2)[0] == pytest.approx(0.8)


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_intervals_hold_the_truth_where_seeds_differ_most(seeds: int) -> None:
    """Of the variance of a mean a fifth is of samples, the rest of seeds."""
    rng = np.random.default_rng(seeds)
    of_seeds = 0.8 * rng.chisquare(seeds - 1, 20_000) / (seeds - 1)
    half = half_of(*combined(np.full(20_000, 0.2), of_seeds, np.zeros(20_000), seeds), 500, seeds)
    assert 0.945 < (np.abs(rng.normal(size=20_000)) < half).mean() < 0.98


def test_no_two_learners_of_a_tie_differ() -> None:
    p = np.full((3, 3), 0.5)
    p[1, 2] = p[2, 1] = 0.01
    assert ties_of(np.arange(3), p) == ((0, 1), (2,))


def test_an_images_own_answers_say_nothing_of_its_workers() -> None:
    """EM in plain loops: what a worker did on the image itself is taken out of the counts."""
    rng, size = np.random.default_rng(0), 30
    answers = [
        (i, w, int(rng.random() < (0.8 if i % 2 else 0.3))) for i in range(size) for w in range(4) if (i + w) % 5
    ]
    p = [[0.0, 0.0] for _ in range(size)]
    for i in range(size):
        own = [g for j, _, g in answers if j == i]
        p[i] = [own.count(t) / len(own) for t in (0, 1)]
    for _ in range(300):
        counts = np.zeros((4, 2, 2))
        for i, w, g in answers:
            for t in (0, 1):
                counts[w, t, g] += p[i][t]
        right = (sum(counts[w, t, t] for w in range(4) for t in (0, 1)) + 1) / (len(answers) + 2)
        new = []
        for i in range(size):
            odds = [(sum(q[t] for q in p) + 1) / (size + 2) for t in (0, 1)]
            for _, w, g in (one for one in answers if one[0] == i):
                for t in (0, 1):
                    usual = right if t == g else 1 - right
                    odds[t] *= (counts[w, t, g] - p[i][t] + 10 * usual) / (counts[w, t].sum() - p[i][t] + 10)
            new.append([value / sum(odds) for value in odds])
        p = new
    found = dawid_skene(Votes(*np.array(answers).T), rounds=300, tolerance=0)
    assert found == pytest.approx(np.array(p), abs=1e-6)
    assert 0.2 < found[:, 0].mean() < 0.8


def test_the_date_of_a_step_is_the_median_of_its_samples() -> None:
    times = {"train": np.array([0, 10, 20]), "test": np.array([30, 1000])}
    splits = {
        name: Split(np.zeros((len(of), 1), np.float32), np.zeros(len(of), np.int64), time=of)
        for name, of in times.items()
    }
    assert record(Stream("s", [Step(0, "a", splits)], ["c"])) == {"names": ["a"], "dates": [20]}


def test_weights_of_a_replicate_have_mean_and_variance_one() -> None:
    answers = Outcomes(np.arange(300), np.zeros(300, int), np.zeros(300, int))
    weights = draws_of([Run({"stream": {}}, [Row("0", 300, 300, answers=answers)])]).weights.astype(float)
    assert weights.shape == (1000, 300)
    assert (weights.sum(1) == 300).all()
    assert weights.var() == pytest.approx(1, abs=0.02)


def test_scores_of_recovery_are_the_last_ones_and_the_first_that_reached_a_target() -> None:
    def tests(corrections: int, novel: int, original: int) -> list[Row]:
        return [
            Row(name, 10, right, 0, corrections, corrections=corrections)
            for name, right in (("novel", novel), ("original", original), ("stream", 1))
        ]

    found = Ocrr().score([row for at in ((0, 3, 9), (7, 5, 8), (11, 6, 5), (13, 9, 4)) for row in tests(*at)], 1)
    assert (found.scores["novel"], found.scores["original"], found.scores["worst"]) == (0.9, 0.4, 0.4)
    assert (found.scores["corrections_to_50"], found.scores["corrections_to_70"]) == (7, 13)
    assert found.measures["corrections_to_30"] is None, "reached before the first correction"
    assert (found.measures["start_novel"], found.measures["start_original"]) == (0.3, 0.9)


def test_what_even_classes_lose_the_odd_ones_gain() -> None:
    assert LabelShift(percent=30.0).shares(1, 1, 3, 0).ravel() == pytest.approx([0.7, 1.6, 0.7])


def test_which_class_is_rounded_up_is_drawn() -> None:
    up = [int(quotas(10, np.full((3, 1), 1 / 3), rng_for(seed)).argmax()) for seed in range(300)]
    assert all(abs(up.count(c) - 100) < 5 * np.sqrt(300 * 2 / 9) for c in range(3))
    pairs = [tuple(np.flatnonzero(quotas(2, np.full((4, 1), 1 / 4), rng_for(seed)))) for seed in range(300)]
    assert len(set(pairs)) == 6
    assert all(abs(pairs.count(pair) - 50) < 5 * np.sqrt(300 * 5 / 36) for pair in pairs)


def test_drift_is_measured_on_test_images() -> None:
    """Test images lie on the other class's side: nothing is right, though all training images would be."""
    x = np.array([[0.0], [1.0], [1.0], [0.0]], np.float32)
    found = drift(x, np.array([0, 1, 0, 1]), np.zeros(4, np.int64), np.array(["train", "train", "test", "test"]))
    assert found["matrix"] == [[0.0]]
