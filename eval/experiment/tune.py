"""Choice of settings: candidates run under the protocol and its budget, on a part of the stream that is never
scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from curate.core.errors import Diverged, IncompatibleStream
from eval.experiment.learner_spec import LearnerSpec
from eval.learner import Learner
from eval.protocol import Protocol, Start
from eval.rows import Row
from stream_builder.stream import Stream

Grid = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Choice:
    """What was chosen, and how."""

    settings: dict[str, Any]
    """the best candidate"""
    record: dict[str, Any]
    """plain data: the `score` that decided, each of `candidates` with it (None: diverged), training `samples`, and
    `updates` of the weights of all candidates"""


def candidates(spec: LearnerSpec, learner: Learner, grid: Grid) -> dict[str, list[Any]]:
    """Setting → values to choose from: the part of the grid that the learner has settings for, and the learner's own
    candidates for settings that are "auto". Raises BadConfig for a value that the setting refuses."""
    grid_of = {**learner.candidates(), **{key: list(values) for key, values in grid.items() if key in spec.settings}}
    for key, values in grid_of.items():
        for value in values:
            spec.check({key: value})
    return grid_of


def choose(protocol: Protocol, part: Stream, grid: Grid, begun: Callable[..., Start]) -> Choice:
    """The settings of `grid` (name → values) with the best primary score on `part`; among equals the first.

    protocol, part: as `Protocol.selection` gives them. begun: settings → a learner that is ready to begin; all
    candidates have the same seed. Candidates that diverge are left out. Raises IncompatibleStream if all do, and
    whatever else stops one.
    """
    settings = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    starts = [begun(**candidate) for candidate in settings]
    found: list[list[Row] | Exception] = []
    for low in range(0, len(starts), protocol.learners_per_pass):
        runs = dict(protocol.run_many(part, starts[low : low + protocol.learners_per_pass]))
        found += [runs[i] for i in sorted(runs)]
    if failed := [rows for rows in found if isinstance(rows, Exception) and not isinstance(rows, Diverged)]:
        raise failed[0]
    results = {
        i: protocol.score(rows, len(part.steps)) for i, rows in enumerate(found) if not isinstance(rows, Exception)
    }
    if not results:
        raise IncompatibleStream("Every candidate diverged.", "Expected one that learns.", "Try smaller values.")
    goal = protocol.goal(next(iter(results.values())))
    values = [results[i].scores[goal.name] if i in results else None for i in range(len(settings))]
    best = max(range(len(settings)), key=lambda i: (goal.gain(values[i]), -i))
    record = {
        "score": goal.name,
        "candidates": [{**candidate, goal.name: value} for candidate, value in zip(settings, values, strict=True)],
        "samples": sum(len(step["train"]) for step in part.steps),
        "updates": sum(start.learner.gradient_steps for start in starts),
    }
    return Choice(settings[best], record)
