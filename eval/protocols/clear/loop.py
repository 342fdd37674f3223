"""The loops of both CLEAR protocols [CLEAR, sec. 4; supplement 3]."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from curate.core.errors import IncompatibleStream
from eval.learner import Learner
from eval.protocol import evaluate_split
from eval.rows import Row
from stream_builder.stream import Split, Step, Stream


def check(stream: Stream, streaming: bool) -> None:
    """Raise IncompatibleStream, naming the step and split, if the protocol cannot run on the stream."""
    if len(stream.steps) < 2:
        raise IncompatibleStream(
            f"The stream {stream.name!r} has {len(stream.steps)} step.",
            "CLEAR's protocols need at least two: next-domain accuracy tests on the step after.",
            "Use more buckets.",
        )
    for step in stream.steps:
        for split in ("train",) if streaming else ("train", "test"):
            if split not in step.splits:
                raise IncompatibleStream(
                    f"Step {step.name!r} of {stream.name!r} has no {split} split.",
                    f"{'clear-streaming' if streaming else 'clear-iid'} needs one in every step.",
                    "Publish the release with splits" + ("." if split == "train" else ", or use clear-streaming."),
                )


def iid(stream: Stream, learner: Learner, rng: np.random.Generator, seeded: bool, share: float) -> Iterator[Row]:
    """Before anything is learned and after each step, test on the test split of every step: a T × T matrix.

    A learner that sees all steps at once (`joint`) learns them first; its rows are equal.

    seeded: join train and test of each step and split again, stratified by class, with `rng`.
    """
    steps = [resplit(step, share, rng) for step in stream.steps] if seeded else list(stream.steps)
    begun, seen = time.process_time(), 0
    for j, other in enumerate(steps):
        yield evaluate_split(learner, other["test"], str(j), begun, learned_to=-1, seen=0)
    if learner.sees_all_steps:
        learner.learn_sequence([step.visible() for step in steps])
    for i, step in enumerate(steps):
        if not learner.sees_all_steps:
            learner.learn_step(step.visible())
        seen += len(step["train"])
        for j, other in enumerate(steps):
            yield evaluate_split(learner, other["test"], str(j), begun, learned_to=i, seen=seen)


def streaming(stream: Stream, learner: Learner, rng: np.random.Generator) -> Iterator[Row]:
    """After each step (all of it is training data), test on all of every later step: cells with j > i.

    Raises IncompatibleStream for a learner that sees all steps at once: it would train on its test data.
    """
    if learner.sees_all_steps:
        problem = "It learns from all steps at once, and in streaming every later step is a test."
        raise IncompatibleStream(problem, "Expected a learner that takes step after step.", "Use clear-iid.")
    begun, seen = time.process_time(), 0
    steps = [step.past() for step in stream.steps]
    for i, step in enumerate(steps[:-1]):
        learner.learn_step(step)
        seen += len(step["train"])
        for j in range(i + 1, len(steps)):
            yield evaluate_split(learner, steps[j]["train"], str(j), begun, learned_to=i, seen=seen)


def resplit(step: Step, share: float, rng: np.random.Generator) -> Step:
    """A new split, stratified by class; the order within each side is kept. share: of test samples."""
    whole = step.everything()
    side = np.zeros(len(whole), bool)
    for label in np.unique(whole.y):
        rows = np.flatnonzero(whole.y == label)
        side[rng.permutation(rows)[: round(share * len(rows))]] = True
    splits: dict[str, Split] = {"train": whole.take(np.flatnonzero(~side)), "test": whole.take(np.flatnonzero(side))}
    return replace(step, splits=splits)
