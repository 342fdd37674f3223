"""Every protocol, with every learner: deterministic, counts in range, and the test data stays hidden."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from support.helpers import drifting

from curate.core.errors import IncompatibleStream
from curate.core.seeding import rng_for
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


def with_val(stream: Stream) -> Stream:
    """A third of each step's training data validates."""
    steps = []
    for step in stream.steps:
        train, cut = step["train"], len(step["train"]) * 2 // 3
        mine = {**step.splits, "train": train.part(0, cut), "val": train.part(cut, len(train))}
        steps.append(Step(step.index, step.name, mine))
    return Stream(stream.name, steps, stream.classes, sha256="with val")


def rows_of(name: str, stream: Stream, learner: Learner) -> list[object]:
    protocol = PROTOCOLS[name]()
    protocol.check(stream)
    protocol = protocol.resolve(stream)
    learner.begin(protocol.task(stream), rng_for(0))
    return list(protocol.run(stream, learner, rng_for(0), 0))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_learner_is_deterministic_and_counts_are_in_range(protocol: str, stream: Stream) -> None:
    stream = with_val(stream) if protocol == "seq-to-final" else stream
    first, again = (evaluate(stream, protocol, list(LEARNERS), seeds=[3], settings={"epochs": 2}) for _ in range(2))

    because = {one["learner"]: one["because"] for one in first["skipped"]}
    scores = {one["learner"]: one["scores"] for one in first["results"]}
    assert set(because) == _cannot(protocol)
    assert set(scores) | set(because) == set(LEARNERS)
    assert scores == {one["learner"]: one["scores"] for one in again["results"]}
    for of in scores.values():
        for name, score in of.items():
            count = name.startswith("corrections_to")
            assert (count and score["mean"] is None) or 0 <= score["mean"] <= (1e6 if count else 1)


def _cannot(protocol: str) -> set[str]:
    """Learners that a protocol must skip: it has to say so, and nobody else may be skipped."""
    all_steps = {name for name, kind in every() if kind.needs_all_steps}
    return {name for name, kind in every() if kind.reads_texts or kind.needs_unlabelled} | {
        "clear-iid": all_steps,
        "clear-streaming": all_steps | {name for name, kind in every() if kind.sees_all_steps},
        "near-future": {name for name, kind in every() if kind.needs_whole_steps},
        "ocrr": all_steps,
        "seq-to-final": {"oracle", "st-1", "st-b", "sst-1", "sst-b"},  # no data for one, no blocks for the others
    }[protocol]


def every() -> list[tuple[str, type[Learner]]]:
    return [(name, LEARNERS[name]) for name in LEARNERS]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_learner_never_holds_a_test_split(protocol: str, stream: Stream) -> None:
    spy = Spy()
    rows_of(protocol, with_val(stream) if protocol == "seq-to-final" else stream, spy)
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
    with pytest.raises(IncompatibleStream, match="at least two"):
        evaluate(drifting(steps=1), protocol, [spy])
    assert not spy.seen


def test_iid_names_the_step_that_lacks_a_test_split(stream: Stream) -> None:
    bare = [Step(s.index, s.name, {"train": s["train"]} if s.index == 2 else s.splits) for s in stream.steps]
    with pytest.raises(IncompatibleStream, match="Step '2'.*no test split"):
        evaluate(Stream("bare", bare, stream.classes), "clear-iid", ["majority"])
