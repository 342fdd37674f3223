"""The loop: all steps' train and validation data, then the last step's test."""

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from driftline.curate.core.errors import IncompatibleStream
from driftline.curate.core.seeding import rng_for
from driftline.eval.answers import evaluate_split
from driftline.eval.learner import Learner
from driftline.eval.protocol import require, require_two
from driftline.eval.rows import Row
from driftline.stream_builder.stream import Step, Stream


def check(stream: Stream, val_share: float = 0.0) -> None:
    """Raise IncompatibleStream, naming step and split or class, if the protocol cannot run on the stream."""
    require_two(stream, "seq-to-final needs history.", "Compose one with driftline stream compose.")
    why = "seq-to-final chooses hyper-parameters on validation data of every step, never on test data."
    way_out = (
        "Make the stream with one (stream compose does, arrays name it in `split`), or take it from the training data: "
        "--set val_share=0.2."
    )
    require(stream, ("train",) if val_share else ("train", "val"), why, way_out)
    if val_share and not any(len(with_val(_labels(step), val_share, 0)["train"]) for step in stream.steps):
        raise IncompatibleStream(
            f"Validation takes all training data of {stream.name!r}.",
            "Expected more than one sample of a class in some step.",
            "Use longer steps.",
        )
    last = stream.steps[-1]
    require(stream, ("test",), "seq-to-final tests on the last step.", steps=[last])
    trained = np.bincount(last["train"].y, minlength=len(stream.classes))
    tested_classes = np.unique(last["test"].y)
    if len(lost := tested_classes[trained[tested_classes] == 0]):
        raise IncompatibleStream(
            f"Class {stream.classes[int(lost[0])]!r} is in the last step's test and not in its training data.",
            "Expected every class of the last step's test in its training data.",
            "Use larger steps, or leave the class out.",
        )


def _labels(step: Step) -> Step:
    """The step with its labels in place of its samples, which need not be copied."""
    return replace(step, splits={name: replace(split, x=split.y) for name, split in step.splits.items()})


def with_val(step: Step, share: float, seed: int) -> Step:
    """The step with a share of each class's training data as validation data, if it has none of its own."""
    if "val" in step.splits or not share:
        return step
    train, rng = step["train"], rng_for(seed, "seq-to-final", "val", step.index)
    held_out = np.zeros(len(train), bool)
    for label in np.unique(train.y):
        rows = rng.permutation(np.flatnonzero(train.y == label))
        held_out[rows[: max(1, round(share * len(rows)))]] = True
    splits = {"train": train.take(np.flatnonzero(~held_out)), "val": train.take(np.flatnonzero(held_out))}
    return replace(step, splits=splits)


def to_final(
    stream: Stream, learner: Learner, per_step: bool, val_share: float = 0.0, seed: int = 0
) -> Iterator[Row]:  # fmt: skip
    """Row "final"; with per_step also one for each step that has a test split, by its number.

    Raises IncompatibleStream for an oracle if the stream has no data for one.
    """
    begun = time.process_time()
    steps = [with_val(step.visible(), val_share, seed) for step in stream.steps]
    if learner.needs.oracle:
        if stream.oracle is None:
            raise IncompatibleStream(
                f"The stream {stream.name!r} has no data for an oracle.",
                "It needs as many samples of the last distribution as the whole sequence has.",
                "stream compose draws them.",
            )
        steps = [stream.oracle.visible()]
    learner.learn_sequence(steps)
    labels, last = np.concatenate([step["train"].y for step in steps]), len(stream.steps) - 1
    at = {"learned_to": last, "seen": len(labels), "constant": int(np.bincount(labels).argmax())}
    yield evaluate_split(learner, stream.steps[-1]["test"], "final", begun, **at)
    if per_step:
        for step in stream.steps:
            if "test" in step.splits:
                yield evaluate_split(learner, step["test"], str(step.index), begun, **at)
