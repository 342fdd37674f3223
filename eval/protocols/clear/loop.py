"""The loops of both CLEAR protocols [CLEAR, sec. 4; supplement 3]."""

import copy
import time
from collections.abc import Iterator, Sequence

import numpy as np

from driftline.curate.core.errors import IncompatibleStream
from driftline.eval.answers import evaluate_split
from driftline.eval.learner import Learner
from driftline.eval.protocol import require, require_two
from driftline.eval.rows import Row
from driftline.eval.visits import newest
from driftline.stream_builder.step import Split, Step
from driftline.stream_builder.stream import Stream


def check(stream: Stream, streaming: bool) -> None:
    """Raise IncompatibleStream, naming the step and split, if the protocol cannot run on the stream."""
    require_two(stream, "next-domain accuracy tests on the step after.", "Use more buckets.")
    name, other = ("clear-streaming", "") if streaming else ("clear-iid", ", or clear-streaming")
    why = f"{name} needs one in every step."
    require(stream, ("train",) if streaming else ("train", "test"), why, f"Use longer steps{other}.")


def iid(stream: Stream, learner: Learner) -> Iterator[Row]:
    """After each step, test on the test split of every step: a T × T matrix. A learner that `knows` something is tested
    before the first step, too.

    A learner that sees all steps at once (`joint`) learns them first; its rows are equal.
    """
    steps = stream.steps
    begun, seen, labels = time.process_time(), 0, np.zeros(len(stream.classes), np.int64)
    for j, other in enumerate(steps if learner.knows else ()):
        yield evaluate_split(learner, other["test"], str(j), begun, learned_to=-1, seen=0)
    if learner.needs.future:
        learner.learn_sequence([step.visible() for step in steps])
    for i, step in enumerate(steps):
        if not learner.needs.future:
            learner.learn_step(step.visible())
        seen, labels = seen + len(step["train"]), labels + np.bincount(step["train"].y, minlength=len(labels))
        for j, other in enumerate(steps):
            at = {"learned_to": i, "seen": seen, "constant": int(labels.argmax())}
            yield evaluate_split(learner, other["test"], str(j), begun, **at)


def streaming(stream: Stream, learner: Learner, rng: np.random.Generator) -> Iterator[Row]:
    """After each step (all of it is training data), test on all of every later step: cells with j > i.

    Raises IncompatibleStream for a learner that sees all steps at once: it would train on its test data.
    """
    if learner.needs.future:
        problem = "It learns from all steps at once, and in streaming every later step is a test."
        raise IncompatibleStream(problem, "Expected a learner that takes step after step.", "Use clear-iid.")
    begun, seen, labels = time.process_time(), 0, np.zeros(len(stream.classes), np.int64)
    steps = [step.past() for step in stream.steps]
    for i, step in enumerate(steps[:-1]):
        learner.learn_step(step)
        seen, labels = seen + len(step["train"]), labels + np.bincount(step["train"].y, minlength=len(labels))
        for j in range(i + 1, len(steps)):
            at = {"learned_to": i, "seen": seen, "constant": int(labels.argmax())}
            yield evaluate_split(learner, steps[j]["train"], str(j), begun, **at)


def equally(
    stream: Stream, learner: Learner, steps: Sequence[Step], tests: Sequence[Split], first: int
) -> Iterator[Row]:
    """A new model for each step but the last `first`: it learns the newest n samples, n those of the least step, and is
    tested on every step, or on those from `first` steps later on."""
    begun, least, untrained = time.process_time(), min(len(step["train"]) for step in steps), copy.deepcopy(learner)
    last = len(steps) - 1 - first
    for i, step in enumerate(steps[: last + 1]):
        model = learner if i == last else copy.deepcopy(untrained)  # what is kept is measured in `learner`
        part = newest(step, least)
        model.learn_sequence([part])
        labels = np.bincount(part["train"].y, minlength=len(stream.classes))
        for j in range(i + 1 if first else 0, len(steps)):
            at = {"learned_to": i, "seen": len(part["train"]), "constant": int(labels.argmax())}
            yield evaluate_split(model, tests[j], str(j), begun, **at)
