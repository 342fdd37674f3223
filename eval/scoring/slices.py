"""Accuracy on slices of the test samples: by class, uploader, place, licence, image size or any other column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.eval.protocol import stored_protocol
from driftline.eval.rows import Run, groups
from driftline.eval.scoring.bands import Array, Band, share
from driftline.eval.scoring.sums import Resampling, drawn, draws_of, summed
from driftline.stream_builder.stream import SPLITS, Stream

MOST = 50  # slices; the rest becomes one
PARTS = 4  # ranges of a number
OTHER = "(other)"
UNKNOWN = "(unknown)"
BEFORE, AFTER = "may have been seen", "newer"  # samples, against what an encoder was trained on
MARK = "† newer"  # of a chart: where AFTER begins


@dataclass(frozen=True)
class Slices:
    """L learners, in the order of `summary`, on V slices, the largest first."""

    names: tuple[str, ...]
    """(V,) values of the column, or ranges of a number"""
    n: npt.NDArray[np.int64]
    """(V,) test samples of one run"""
    accuracy: Band
    """(L, V) share of right answers; intervals over seeds and test samples"""
    gap: Band
    """(L, V) accuracy on the slice minus that on all other samples"""


def column_of(stream: Stream, values: Mapping[str, Any]) -> Array:
    """Sample id → value, of a table → (N,) values by position in the stream; None for an id that is not there."""
    column = np.empty(sum(len(split) for step in stream.steps for split in step.splits.values()), object)
    start = 0
    for step in stream.steps:
        for name in (name for name in SPLITS if name in step.splits):
            ids = step.splits[name].ids.tolist()
            column[start : start + len(ids)] = [values.get(id_) for id_ in ids]
            start += len(ids)
    return column


def end_of(date: str) -> int | None:
    """The first second (UTC) after a year, month or day; None for what is no date.

    >>> end_of("1970"), end_of("1970-01"), end_of("1970-01-01"), end_of("unknown")
    (31536000, 2678400, 86400, None)
    """
    try:
        return int((np.datetime64(date) + 1).astype("datetime64[s]").astype(np.int64)) if date[:4].isdecimal() else None
    except ValueError:
        return None


def sides_of(stream: Stream, end: int) -> Array | None:
    """(N,) by position in the stream: BEFORE `end` (seconds UTC), when an encoder's data end, or AFTER; None if some
    sample has no time."""
    splits = [step.splits[name] for step in stream.steps for name in SPLITS if name in step.splits]
    times = [split.time for split in splits]
    dated = [time for time in times if time is not None]
    if len(dated) < len(times) or not dated:
        return None
    return np.where(np.concatenate(dated) < end, BEFORE, AFTER).astype(object)


def since(newer: Sequence[bool], at: Sequence[float]) -> dict[str, float]:
    """The mark of a chart: the first place of `at` from which on all are newer; {} if there is none.

    >>> since([False, True, True], [2010, 2011, 2012]), since([True, False], [2010, 2011])
    ({'† newer': 2011}, {})
    """
    return next(({MARK: place} for k, place in enumerate(at) if k < len(newer) and all(newer[k:])), {})


def newer_tests(runs: Sequence[Run], column: Array) -> dict[str, float]:
    """Name of a test → share of newer samples, over all runs; without tests on single steps, and without outcomes {}.

    column: of `sides_of`.
    """
    roles, counts = stored_protocol(runs[0].about["protocol"]).roles, dict[str, list[int]]()
    for row in (row for run in runs for row in roles.decisive(run.rows) if roles.step(row) is None):
        if row.answers is not None:
            newer, n = counts.get(row.tested_on, (0, 0))
            sides = column[row.answers.sample]
            counts[row.tested_on] = [newer + int((sides == AFTER).sum()), n + len(sides)]
    return {name: newer / n for name, (newer, n) in counts.items() if n}


def slices(
    runs: Sequence[Run],
    column: Array,
    stream: Stream | None = None,
    resampling: Resampling | None = None,
) -> Slices | None:
    """Accuracy on the tests that decide the primary score, by a column; None as for `compare`.

    column: (N,) a value for each position in the stream, as of `column_of`; numbers with more than `MOST` different
    values are cut into PARTS ranges with about equally many samples. stream: gives the clusters. Raises
    IncompatibleStream for another stream than that of the runs.
    """
    roles = stored_protocol(runs[0].about["protocol"]).roles
    draws = draws_of(runs, resampling, stream)
    learners = groups(runs)
    tests = [[roles.decisive(run.rows) for run in group] for group in learners]
    rows = [row for group in tests for tested in group for row in tested]
    if not rows or any(row.answers is None for row in rows):
        return None
    sample = np.unique(np.concatenate([row.answers.sample for row in rows if row.answers is not None]))
    names, number = _numbered(column[sample])
    bands = []
    for group in tests:
        answers = [[a for row in tested if (a := row.answers) is not None] for tested in group]
        parts = [
            [
                (a, number[np.searchsorted(sample, a.sample)], (a.label == a.predicted, np.ones(len(a), bool)))
                for a in of_seed
            ]
            for of_seed in answers
        ]
        of = summed(parts, (len(names),), draws)
        found = drawn(_accuracy_and_gap, replace(of, clusters=of.present().sum(0)))
        bands.append([found[name].band() for name in ("accuracy", "gap")])
    accuracy, gap = map(Band.stacked, zip(*bands, strict=True))
    return Slices(names, np.bincount(number, minlength=len(names)), accuracy, gap)


def _accuracy_and_gap(right: Array, n: Array) -> dict[str, Array]:
    """(..., V) counts → accuracy on each slice, and minus that on all others; NaN of nothing."""
    rest_right, rest = right.sum(-1, keepdims=True) - right, n.sum(-1, keepdims=True) - n
    inside = share(right, n)
    return {"accuracy": inside, "gap": inside - share(rest_right, rest)}


def _numbered(values: Array) -> tuple[tuple[str, ...], npt.NDArray[np.int64]]:
    """Names of the slices, the largest first, and the number of each value's slice."""
    unknown = np.array([value is None or value != value or value == "" for value in values.tolist()])
    present = [value for value, lacks in zip(values.tolist(), unknown, strict=True) if not lacks]
    numeric = bool(present) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in present)
    texts = np.full(len(values), UNKNOWN, object)
    if numeric and len(set(present)) > MOST:
        texts[~unknown] = _ranges(np.array(present, np.float64))
    else:
        texts[~unknown] = [str(value) for value in present]
    names, number, count = np.unique(texts.astype(str), return_inverse=True, return_counts=True)
    order = np.argsort(-count, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.minimum(np.arange(len(order)), MOST)
    shown = names[order][:MOST].tolist() + ([OTHER] if len(order) > MOST else [])
    return tuple(shown), place[number]


def _ranges(values: Array) -> list[str]:
    """The range of each value: parts with about equally many values."""
    edges = np.unique(np.quantile(values, np.linspace(0, 1, PARTS + 1)))
    of = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    return [f"{edges[k]:g} – {edges[k + 1]:g}" for k in of.tolist()]
