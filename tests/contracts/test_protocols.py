"""Every protocol, with every learner: deterministic, counts in range, and the test data stays hidden."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from support.helpers import drifting

from driftline.curate.core.errors import IncompatibleStream
from driftline.curate.core.seeding import rng_for
from driftline.eval.experiment.settings import described, setting_names
from driftline.eval.learner import Array, Labels, Learner, Task
from driftline.eval.learners import LEARNERS
from driftline.eval.protocol import PROTOCOLS, scores_of
from driftline.eval.protocol_abilities import resolve
from driftline.eval.rows import Row
from driftline.eval.run import evaluate
from driftline.eval.scoring.ranking import mean_of
from driftline.stream_builder.stream import Step, Stream


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
        self.learn(step["train"].x, step["train"].y)


def with_val(stream: Stream) -> Stream:
    """A third of each step's training data validates."""
    steps = []
    for step in stream.steps:
        train, cut = step["train"], len(step["train"]) * 2 // 3
        splits = {**step.splits, "train": train.part(0, cut), "val": train.part(cut, len(train))}
        steps.append(Step(step.index, step.name, splits))
    return Stream(stream.name, steps, stream.classes, sha256="with val")


def fitting(protocol: str, stream: Stream) -> Stream:
    """The stream, or the same with validation data if the protocol needs some."""
    try:
        PROTOCOLS[protocol]().check(stream)
    except IncompatibleStream:
        return with_val(stream)
    return stream


def rows_of(name: str, stream: Stream, learner: Learner) -> list[Row]:
    protocol = PROTOCOLS[name]()
    protocol.check(stream)
    protocol = resolve(protocol, stream)
    learner.begin(protocol.task(stream), rng_for(0))
    return list(protocol.run(stream, learner, rng_for(0), 0))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_learner_is_deterministic_and_scores_are_in_range(protocol: str, stream: Stream) -> None:
    stream = fitting(protocol, stream)
    first, again = (
        evaluate(stream, protocol, list(LEARNERS), seeds=[3], settings=SHORT.get(protocol, {"epochs": 2}))
        for _ in range(2)
    )

    because = {entry["learner"]: entry["because"] for entry in first["skipped"]}
    scores = {result["learner"]: result["scores"] for result in first["results"]}
    assert not [reason for reason in because.values() if "It crashed" in reason]
    if protocol in SKIPPED:
        assert set(because) == SKIPPED[protocol]()
    assert set(scores) | set(because) == set(LEARNERS)
    assert scores == {result["learner"]: result["scores"] for result in again["results"]}
    for result in first["results"]:
        for score in scores_of(first):
            mean = mean_of(score, result)
            assert mean is None or 0 <= mean <= (1 if score.unit == "share" else 1e6)


def every(condition: Callable[[type[Learner]], object]) -> set[str]:
    return {name for name in LEARNERS if condition(LEARNERS[name])}


def unfit() -> set[str]:
    """Learners of texts, images, class texts and unlabelled samples: the stream has none of them."""
    return every(lambda k: k.needs.texts or k.needs.images or k.needs.class_texts or k.needs.unlabelled)


def to_final() -> set[str]:
    return every(lambda kind: kind.needs.all_steps)


SHORT: dict[str, dict[str, int]] = {"near-future": {"updates": 3}}  # which has a budget instead

SKIPPED: dict[str, Callable[[], set[str]]] = {  # of our own protocols: all others must run
    "clear-iid": lambda: unfit() | to_final(),
    "clear-streaming": lambda: unfit() | to_final() | every(lambda kind: kind.needs.future),
    "near-future": lambda: unfit() | every(lambda kind: kind.needs.whole_steps or kind.needs.first_step),
    "ocrr": lambda: unfit() | every(lambda kind: kind.needs.whole_steps),
    "adaptation": lambda: unfit() | to_final() | every(lambda kind: kind.needs.future),
    "seq-to-final": lambda: (  # no data for an oracle, no blocks for side modules
        unfit() | every(lambda kind: kind.needs.oracle) | {"st-1", "st-b", "sst-1", "sst-b"}
    ),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_setting_has_a_meaning(protocol: str) -> None:
    settings = described(PROTOCOLS[protocol])
    assert [setting.name for setting in settings] == setting_names(PROTOCOLS[protocol])
    assert not [setting.name for setting in settings if not setting.meaning]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_declared_scores_are_returned_and_the_primary_one_is_declared(protocol: str, stream: Stream) -> None:
    kind = PROTOCOLS[protocol]
    (result,) = evaluate(fitting(protocol, stream), protocol, ["nearest-mean"])["results"]
    assert {score.name for score in kind.scores} <= set(result["scores"])
    assert {score.name for score in kind.measures} <= set(result["measures"])
    assert kind.primary in ("", *result["scores"])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_learner_never_holds_a_test_split(protocol: str, stream: Stream) -> None:
    spy = Spy()
    rows_of(protocol, fitting(protocol, stream), spy)
    assert "test" not in spy.splits


def test_iid_never_trains_on_test_samples(stream: Stream) -> None:
    spy = Spy()
    rows_of("clear-iid", stream, spy)
    tests = {x.tobytes() for step in stream.steps for x in step["test"].x}
    assert not tests & {x.tobytes() for batch in spy.seen for x in batch}


def test_streaming_tests_only_the_future(stream: Stream) -> None:
    for row in rows_of("clear-streaming", stream, Spy()):
        assert int(row.tested_on) > row.learned_to


@pytest.mark.parametrize("protocol", ["clear-iid", "clear-streaming"])
def test_a_stream_of_one_step_is_refused_before_any_work(protocol: str) -> None:
    spy = Spy()
    with pytest.raises(IncompatibleStream, match="at least two"):
        evaluate(drifting(steps=1), protocol, [spy])
    assert not spy.seen


def test_iid_names_the_step_that_lacks_a_test_split(stream: Stream) -> None:
    bare = [Step(s.index, s.name, {"train": s["train"]} if s.index == 2 else s.splits) for s in stream.steps]
    with pytest.raises(IncompatibleStream, match="Step '2'.*no test split"):
        evaluate(Stream("bare", bare, stream.classes), "clear-iid", ["majority"])
