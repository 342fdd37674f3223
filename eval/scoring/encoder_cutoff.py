"""Accuracy on test samples that an encoder may have seen, and on newer ones."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from driftline.eval.protocol import stored_protocol
from driftline.eval.rows import Run, groups
from driftline.eval.scoring.bands import Array, Band, share
from driftline.eval.scoring.sums import Resampling, drawn, draws_of, summed
from driftline.stream_builder.stream import SPLITS, Stream


def end_of(date: str) -> int | None:
    """The first second (UTC) after a year, month or day; None for what is no date.

    >>> end_of("1970"), end_of("1970-01"), end_of("1970-01-01"), end_of("unknown")
    (31536000, 2678400, 86400, None)
    """
    try:
        return int((np.datetime64(date) + 1).astype("datetime64[s]").astype(np.int64)) if date[:4].isdecimal() else None
    except ValueError:
        return None


def newer_samples(stream: Stream, end: int) -> Array | None:
    """(N,) by position in the stream: whether a sample is not before `end` (seconds UTC), when an encoder's data end;
    None if some sample has no time."""
    splits = [step.splits[name] for step in stream.steps for name in SPLITS if name in step.splits]
    dated = [split.time for split in splits if split.time is not None]
    return np.concatenate(dated) >= end if dated and len(dated) == len(splits) else None


def accuracy_before_and_after(
    runs: Sequence[Run], newer: Array, stream: Stream, resampling: Resampling | None = None
) -> list[dict[str, Band]]:
    """Of each learner, in the order of `summary`, on the tests that decide the primary score: the accuracy on samples
    `before` the end of the encoder's data, `after` it, and the `gap` between both, with intervals over seeds and test
    samples; [] without outcomes, and where all samples are on one side.

    newer: as of `newer_samples`. Raises IncompatibleStream for another stream than that of the runs.
    """
    roles = stored_protocol(runs[0].about["protocol"]).roles
    draws = draws_of(runs, resampling, stream)
    tests = [[[row.answers for row in roles.decisive(run.rows)] for run in group] for group in groups(runs)]
    every = [answers for group in tests for tested in group for answers in tested]
    sides = [newer[answers.sample] for answers in every if answers is not None]
    if not every or len(sides) < len(every) or len(np.unique(np.concatenate(sides))) < 2:
        return []

    def accuracy_and_gap(right: Array, n: Array) -> dict[str, Array]:
        inside = share(right, n)
        return {"accuracy": inside, "gap": inside - inside[..., ::-1]}

    results = []
    for group in tests:
        parts = [
            [
                (a, newer[a.sample].astype(np.int64), (a.label == a.predicted, np.ones(len(a), bool)))
                for a in tested
                if a is not None
            ]
            for tested in group
        ]
        of = summed(parts, (2,), draws)
        drawn_of = drawn(accuracy_and_gap, replace(of, clusters=of.present().sum(0)))
        accuracy, gap = (drawn_of[name].band() for name in ("accuracy", "gap"))
        results.append({"before": accuracy[0], "after": accuracy[1], "gap": gap[0]})
    return results
