"""Every protocol, with every learner: deterministic, counts in range, and the test data stays hidden."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from helpers import drifting

from curate.ground.errors import Unfit
from curate.ground.rng import rng_for
from eval.learner import Array, Labels, Learner, Task
from eval.learners import LEARNERS
from eval.protocol import PROTOCOLS
from eval.run import evaluate
from stream_builder.stream import Step, Stream


@dataclass
class Spy(Learner):
    """Remembers every sample that it was given to learn."""

    seen: list[Array] = field(default_factory=list)
    splits: list[str] = field(default_factory=list)

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        self.seen.clear()
        self.splits.clear()

    def predict(self, x: Array) -> Labels:
        return np.zeros(len(x), np.int64)

    def learn(self, x: Array, y: Labels) -> None:
        self.seen.append(np.asarray(x))

    def learn_step(self, step: Step) -> None:
        self.splits.extend(step.splits)
        super().learn_step(step)


def rows_of(name: str, stream: Stream, learner: Learner) -> list[object]:
    walk = PROTOCOLS[name]()
    walk.fit(stream)
    learner.begin(walk.task(stream), rng_for(0))
    return list(walk.walk(stream, learner, rng_for(0)))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("learner", LEARNERS)
def test_every_learner_is_deterministic_and_counts_are_in_range(protocol: str, learner: str, stream: Stream) -> None:
    short = {"epochs": 2} if "epochs" in LEARNERS[learner]().settings() else {}
    first = evaluate(stream, protocol, [learner], seeds=[3], settings=short)
    again = evaluate(stream, protocol, [learner], seeds=[3], settings=short)
    if getattr(LEARNERS[learner], "sees_all", False) and protocol == "clear-streaming":
        assert "every later step is a test" in first["skipped"][0]["because"]
        return
    if LEARNERS[learner].whole and protocol == "near-future":
        assert LEARNERS[learner].whole in first["skipped"][0]["because"]
        return
    assert first["results"][0]["scores"] == again["results"][0]["scores"]
    for name, score in first["results"][0]["scores"].items():
        count = name.startswith("corrections_to")
        assert (count and score["mean"] is None) or 0 <= score["mean"] <= (1e6 if count else 1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_learner_never_holds_a_test_split(protocol: str, stream: Stream) -> None:
    spy = Spy()
    rows_of(protocol, stream, spy)
    assert "test" not in spy.splits


def test_iid_never_trains_on_test_samples(stream: Stream) -> None:
    spy = Spy()
    rows_of("clear-iid", stream, spy)
    tests = {x.tobytes() for step in stream.steps for x in step["test"].x}
    assert not tests & {x.tobytes() for batch in spy.seen for x in batch}


def test_streaming_tests_only_the_future(stream: Stream) -> None:
    for row in rows_of("clear-streaming", stream, Spy()):
        assert int(row.tested_on) > row.learned_to  # type: ignore[attr-defined]


@pytest.mark.parametrize("protocol", ["clear-iid", "clear-streaming"])
def test_a_stream_of_one_step_is_refused_before_any_work(protocol: str) -> None:
    spy = Spy()
    with pytest.raises(Unfit, match="at least two"):
        evaluate(drifting(steps=1), protocol, [spy])
    assert not spy.seen


def test_iid_names_the_step_that_lacks_a_test_split(stream: Stream) -> None:
    bare = [Step(s.index, s.name, {"train": s["train"]} if s.index == 2 else s.splits) for s in stream.steps]
    with pytest.raises(Unfit, match="Step '2'.*no test split"):
        evaluate(Stream("bare", bare, stream.classes), "clear-iid", ["majority"])
