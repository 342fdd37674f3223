"""Small cases whose result follows by hand: intervals, degrees of freedom, ties, audits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t as student
from support.helpers import drifting

from curate.core.errors import IncompatibleStream
from curate.validation.judging.guarantee import Sample, precision
from curate.validation.judging.opinions import opinion, table_of
from curate.validation.judging.routing import Rules, route
from eval.learner import Task
from eval.learners.label_shift import Bbse
from eval.outcomes import check_stream
from eval.rows import Run
from eval.scoring.comparing import _p_of_scores, _ties
from eval.scoring.decay import half_lives


def test_a_half_life_has_the_middle_95_percent_of_its_replicates() -> None:
    """Accuracy 1 when fresh and v a year later: half is gone after .5 / (1 - v) years; here .5 to 1 in equal steps."""
    times = 0.5 + 0.5 * np.arange(1001) / 1000
    drawn = np.ones((1001, 1, 2, 2))
    drawn[:, 0, 0, 1] = 1 - 0.5 / times
    (found,) = half_lives(drawn[500], drawn, np.zeros((1, 2)), np.array([0.0, 1.0]), np.array([0, 1]), None)
    assert (found.value, found.low, found.high) == pytest.approx((0.75, 0.5125, 0.9875), abs=1e-9)
    assert found.reached == 1


def test_freedom_is_satterthwaites() -> None:
    """Three seeds; the variance of the gap is twice that of the seeds' mean: 2² × (3 − 1) degrees of freedom."""
    points = [np.array([0.5, 0.6, 0.7]), np.array([0.5, 0.5, 0.5])]
    of_mean = np.var(points[0] - points[1], ddof=1) / 3
    drawn = np.zeros((2, 2, 2))
    drawn[:, 0, 1] = np.sqrt(2 * of_mean) * np.array([-1.0, 1.0])
    drawn[:, 1, 0] = -drawn[:, 0, 1]
    gaps = np.array([[0.0, 0.1], [-0.1, 0.0]])
    p = _p_of_scores(gaps, drawn, points)
    assert p[0, 1] == pytest.approx(2 * student.sf(0.1 / np.sqrt(2 * of_mean), 8))


def test_no_two_learners_of_a_tie_differ() -> None:
    p = np.full((3, 3), 0.5)
    p[1, 2] = p[2, 1] = 0.01
    assert _ties(np.arange(3), p) == ((0, 1), (2,))


ITEMS = [{"id": f"p{i}", "bucket": 0, "concept": "bus"} for i in range(11)]


def test_the_audited_share_is_rounded_up() -> None:
    opinions = table_of(opinion(i["id"], 0, "j", ["bus"], confidence=0.99) for i in ITEMS)
    routes = route(ITEMS, opinions, Rules(skip=True, confidence=0.9, audit_share=0.1))
    assert [one.to for one in routes.values()].count("audit") == 2


def test_an_image_on_which_one_of_three_judges_differs_goes_to_people() -> None:
    said = {"a": "bus", "b": "bus", "c": "car"}
    opinions = table_of(opinion("p0", 0, j, [label], confidence=0.6 if j == "c" else 0.99) for j, label in said.items())
    (one,) = route(ITEMS[:1], opinions, Rules(skip=True, confidence=0.5, audit_share=0.1)).values()
    assert one.label == {"bus"}
    assert one.to == "people"


def test_what_people_saw_divides_the_error_of_the_others() -> None:
    """Half of the labels seen: half of the share's deviation, a quarter of its variance."""
    sample = Sample(np.array([1.0, 0, 1, 1]), np.full(4, 0.8), np.full(10, 0.8))
    all_unseen, half = (precision(seen, sample) for seen in (0, 10))
    assert half.variance == pytest.approx(all_unseen.variance / 4)
    assert half.value == pytest.approx(0.5 + all_unseen.value / 2)


def test_bbse_solves_answers_equal_confusions_times_frequencies() -> None:
    """Of class 0, .8 are answered 0; of class 1, .1 are. .275 of all answers are 0: so .25 are of class 0."""
    learner, truth = Bbse(), np.repeat([0, 1], 10)
    learner.begin(Task(2, (1,)), np.random.default_rng(0))
    learner.fit_held(np.eye(2)[[0] * 8 + [1] * 2 + [0] + [1] * 9], truth)
    found = learner.estimate(np.eye(2)[[0] * 275 + [1] * 725], np.array([0.5, 0.5]))
    assert found == pytest.approx([0.25, 0.75])


def test_outcomes_are_of_one_stream() -> None:
    about = {"learner": "l", "seed": 0, "stream": {"name": "drifting", "sha256": "drifting"}}
    check_stream([Run(about, [])], drifting())
    other = about | {"stream": {"name": "drifting", "sha256": "another"}}
    with pytest.raises(IncompatibleStream, match="Expected the stream on which the run was evaluated"):
        check_stream([Run(about, []), Run(other, [])], drifting())
