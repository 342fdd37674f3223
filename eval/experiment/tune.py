"""Selection of hyper-parameters without access to the future: on a part of the first step's training data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from curate.core.errors import Diverged, IncompatibleStream
from curate.core.seeding import rng_for
from eval.experiment.learner_spec import LearnerSpec
from eval.learner import Learner, Task
from stream_builder.stream import Step

SHARE = 0.2  # share of the first step's training data on which candidates are compared

Grid = Mapping[str, Sequence[Any]]


def candidates(spec: LearnerSpec, grid: Grid) -> dict[str, list[Any]]:
    """The part of the grid that the learner has settings for. Raises BadConfig for a value that the setting refuses."""
    grid_of = {key: list(values) for key, values in grid.items() if key in spec.settings}
    for key, values in grid_of.items():
        for value in values:
            spec.check({key: value})
    return grid_of


def choose(make: Callable[..., Learner], grid: Grid, task: Task, first: Step, seed: int) -> dict[str, Any]:
    """The settings of `grid` (name → values) whose learner is best on the held-out part; among equals the first.

    first: the first step as the protocol shows it for training. All candidates have the same split, start and data.
    Candidates that diverge are skipped. Raises IncompatibleStream if all do.
    """
    data = first["train"]
    order = rng_for(seed, "tune").permutation(len(data))
    cut = max(1, round(SHARE * len(data)))
    held_out, rest = data.take(np.sort(order[:cut])), data.take(np.sort(order[cut:]))
    best: tuple[float, dict[str, Any]] | None = None
    for values in product(*grid.values()):
        candidate = dict(zip(grid, values, strict=True))
        learner = make(**candidate)
        learner.begin(task, rng_for(seed, "tune", "learner"))
        try:
            learner.learn_step(replace(first, splits={"train": rest}))
        except Diverged:
            continue
        accuracy = float(np.mean(learner.predict(held_out.x) == held_out.y))
        if best is None or accuracy > best[0]:
            best = accuracy, candidate
    if best is None:
        raise IncompatibleStream(
            "Every candidate of --tune diverged.", "Expected one that learns.", "Try smaller values."
        )
    return best[1]
