"""A small stream made of training data alone, on which a protocol may run before its scored run."""

import numpy as np

from driftline.curate.core.errors import IncompatibleStream
from driftline.stream_builder.stream import Split, Step, Stream

STEPS = 3  # the fewest of which the second step's learning counts: it has a step before it and is tested on the next
TEST_SHARE = 0.2
LEAST = 4  # samples of a step


def rehearsal(stream: Stream, data: Split, rng: np.random.Generator, steps: int = STEPS) -> Stream:
    """`data` in equal steps with train and test splits: in order of time if times are known, else at random.

    Classes and their labels are those of `stream`. Raises IncompatibleStream for too few samples.
    """
    if len(data) < steps * LEAST:
        raise IncompatibleStream(
            f"Settings would be chosen on {len(data)} training samples of {stream.name!r}.",
            f"Expected at least {steps * LEAST}.",
            "Give the setting a value.",
        )
    shuffled = rng.permutation(len(data))
    order = shuffled if data.time is None else shuffled[np.argsort(data.time[shuffled], kind="stable")]
    parts = []
    for t, rows in enumerate(np.array_split(order, steps)):
        is_test = np.zeros(len(rows), bool)
        is_test[rng.permutation(len(rows))[: max(1, round(TEST_SHARE * len(rows)))]] = True
        splits = {"train": data.take(np.sort(rows[~is_test])), "test": data.take(np.sort(rows[is_test]))}
        parts.append(Step(t, str(t), splits))
    return Stream(
        f"{stream.name}: settings",
        parts,
        stream.classes,
        stream.prior,
        facts=stream.facts,
        class_texts=stream.class_texts,
    )
