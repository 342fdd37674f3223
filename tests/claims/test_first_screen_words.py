"""Sentences of a first screen in worlds whose truth is known: which may appear in which world."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from claims.test_first_screen import by_hand
from claims.worlds import planted

from driftline.eval.reporting.report import answer_of, document_of
from driftline.eval.rows import Run
from driftline.eval.scoring.net import Control, Draw, key_of, matrix_of, over_samples, pairs_in
from driftline.eval.scoring.sums import groups_of
from driftline.eval.visits import permuted, visits_of
from driftline.stream_builder.stream import Split, Stream

DRAWS = 8
WORLDS = 40  # of each kind: a rate of 5 % is above 4 in 1 of 20 choices of seeds
NEVER = ("ages least", "ages fastest", "fell least", "fell most", "data got harder")


def named(run: Run, name: str) -> Run:
    about = run.about | {"learner": name, "stored_bytes": 0, "gradient_steps": 0}
    return Run(about, [replace(row, constant=0) for row in run.rows])


def noisy(run: Run, name: str, seed: int, share: float = 0.1) -> Run:
    """Another learner that is as good: other answers are wrong."""
    rng, rows = np.random.default_rng(seed), []
    for row in run.rows:
        answers = row.answers
        assert answers is not None
        mixed = np.where(rng.random(row.n) < share, (answers.predicted + 1) % 4, answers.predicted)
        right = int((mixed == answers.label).sum())
        rows.append(replace(row, answers=replace(answers, predicted=mixed), n_correct=right))
    return named(replace(run, rows=rows), name)


def screen(
    stream: Stream, make: Callable[[Stream], list[Run]], control: bool = True, learners: tuple[str, ...] = ()
) -> dict[str, Any]:
    """What the first screen says of the runs that `make` gives on a stream, with a control of the same. learners: that
    have one; (): all."""
    runs, draws = make(stream), list[Draw]()
    pairs, visits = pairs_in(runs[0]), visits_of(stream)
    for k in range(DRAWS if control else 0):
        other = permuted(stream, visits, "within", k, 0)
        for run, of in zip(runs, make(other), strict=True):
            if learners and run.about["learner"] not in learners:
                continue
            variance = over_samples([of], pairs.cells(len(stream)), groups_of(other)).variance
            draws.append(Draw("within", k, 0, key_of(run.about), matrix_of(of), variance))
    key = (stream.sha256, "clear-iid", "planted")
    found = answer_of([document_of(runs, key, stream, True, Control(len(draws) and DRAWS, "", draws))])
    text = " ".join([found["headline"], *found["sentences"], *found["may_conclude"]])
    assert not any(word in text for word in NEVER)
    assert len(f"{found['headline']} {found['sentences'][0]}".split()) <= 120
    return found | {"text": text}


def both(stream: Stream) -> list[Run]:
    """Means of all steps, and of the newest step alone."""
    return [named(by_hand(stream, False), "all"), named(by_hand(stream, True), "newest")]


def equal(stream: Stream) -> list[Run]:
    """Two learners that are equally good."""
    run = by_hand(stream, False)
    return [noisy(run, "a", 1), noisy(run, "b", 2)]


def says(phrase: str, world: Callable[[int], Stream], worlds: int, make: Callable[[Stream], list[Run]] = both) -> float:
    """Share of worlds whose first screen has a phrase."""
    return float(np.mean([phrase in screen(world(seed), make)["text"] for seed in range(worlds)]))


def shuffled(seed: int) -> Stream:
    """Labels that samples do not tell."""
    rng, steps = np.random.default_rng(seed), []
    for step in planted(seed, steps=5):
        splits = {name: Split(s.x, rng.permutation(s.y), s.ids, s.time, s.group) for name, s in step.splits.items()}
        steps.append(replace(step, splits=splits))
    return replace(planted(seed, steps=5), steps=steps)


@pytest.mark.proof("statistics")
def test_where_samples_tell_nothing_nobody_is_first() -> None:
    found = [screen(shuffled(seed), both) for seed in range(WORLDS)]
    assert np.mean([not one["headline"].startswith("No learner is above") for one in found]) <= 0.1
    assert np.mean(["is the most accurate" in one["text"] for one in found]) <= 0.05


def test_a_world_that_turns_and_one_that_does_not() -> None:
    turning = screen(planted(1, steps=6, turns=0.2), both)
    assert turning["headline"].startswith(("Models age", "Some of the best models age"))
    still = screen(planted(1, steps=6), both)
    assert "age:" not in still["headline"]
    assert "which have also seen more data" in screen(planted(1, steps=6, turns=0.2), both, control=False)["text"]


def test_ageing_is_said_of_learners_with_a_control_alone() -> None:
    found = screen(planted(1, steps=6, turns=0.2), equal, learners=("a",))
    assert found["sentences"][0].startswith("a loses")
    assert found["sentences"][0].endswith("; 1 learner of the group had none.")
    assert "that models of b age: no control was run (driftline eval … --control 20)" in found["may_not_conclude"]


@pytest.mark.proof("statistics")
@pytest.mark.parametrize("kind", [{}, {"mix": 0.8}, {"harder": 0.08}])
def test_without_drift_nobody_is_said_to_age(kind: dict[str, float]) -> None:
    assert says("by ageing", partial(planted, steps=6, **kind), WORLDS) <= 0.1


@pytest.mark.proof("statistics")
def test_where_models_age_it_is_never_said_that_they_do_not() -> None:
    assert says("No measurable ageing", partial(planted, steps=6, turns=0.2), WORLDS) <= 0.05


@pytest.mark.proof("statistics")
def test_of_equal_learners_none_is_the_most_accurate() -> None:
    assert says("is the most accurate", partial(planted, steps=6), WORLDS, equal) <= 0.1


@pytest.mark.proof("statistics")
def test_equally_hard_tests_are_not_called_harder() -> None:
    assert says("become harder", partial(planted, steps=6, turns=0.1), WORLDS) <= 0.1
