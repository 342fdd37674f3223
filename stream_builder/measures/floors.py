"""Distances between steps with what chance alone gives: the distance between two random parts of one step."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from driftline.curate.core.seeding import rng_for
from driftline.stream_builder.measures import DISTANCES
from driftline.stream_builder.measures.shift_distance import (
    VARIANCE,
    Fidelity,
    Floats,
    Labels,
    affordable,
    by_class,
    distances,
    label_statistics,
    measure,
    project,
    sharing,
    thinned,
    train_and_test,
    transport,
)  # fmt: skip
from driftline.stream_builder.stream import Stream

DIVISIONS, FEWEST = 200, 40  # of the last step
PAIRS = 40_000_000  # of points, of all divisions: about twenty seconds of exact transport
FEWEST_GROUPS = 10  # of the last step's samples
SIMILAR = 1.1  # steps whose sizes differ by less have one floor


def floors(stream: Stream, names: Sequence[str], fidelity: Fidelity | None = None, seed: int = 0) -> dict[str, Any]:
    """{"floor": name of a measure → a value for each of its steps that 95 % of random divisions of the last step's own
    samples stay below, None if it is not known; "floor_because": name → how many divisions, or why it is not known}.

    A division has as many test samples as the last step, and of the others as many as the step, but at most all: of a
    step that is larger than the last one, the floor is a little too high. Groups stay together. names, fidelity: as of
    `shift_distance.measured`. Raises IncompatibleStream.
    """
    trains, test = train_and_test(stream)
    last = trains[-1]
    groups = None if last.group is None or test.group is None else np.concatenate([last.group, test.group])
    known = groups is None or len(np.unique(groups)) >= FEWEST_GROUPS
    sizes = sorted({min(len(train), len(last)) for train in trains})
    size_of = [next(m for m in sizes if min(len(train), len(last)) <= SIMILAR * m) for train in trains]
    found: dict[str, Any] = {"floor": {}, "floor_because": {}}
    for name in names:
        pairs = sum([50 * (m + len(test)) if name == "sliced" else m * len(test) for m in {*size_of}])
        divisions = min(DIVISIONS, PAIRS // pairs)
        parts = ["covariate", "conditional"] if name == "paper" else [name]
        if not known or divisions < FEWEST:
            why = "the last step is too large" if known else f"the last step has fewer than {FEWEST_GROUPS} groups"
            found["floor"] |= dict.fromkeys(parts)
            found["floor_because"] |= dict.fromkeys(parts, f"not known: {why}")
            continue
        points, target = project(trains, test, VARIANCE if name == "paper" else 1.0)
        pool, y = np.concatenate([points[-1], target]), np.concatenate([last.y, test.y])
        drawn = {
            m: np.array(
                [
                    _distances(name, stream, fidelity, pool, y, a, b, seed)
                    for a, b in _divisions(len(pool), len(test), m, groups, divisions, seed)
                ]
            )
            for m in {*size_of}
        }
        rank = int(np.ceil(0.95 * (divisions + 1))) - 1
        own = _distances(name, stream, fidelity, pool, y, *np.split(np.arange(len(pool)), [len(last)]), seed)
        for k, part in enumerate(parts):
            divided, steps = (own[k], size_of[:-1]) if name == "paper" else (1.0, size_of)
            found["floor"][part] = [float(np.sort(drawn[m][:, k])[rank] / divided) for m in steps]
            found["floor_because"][part] = f"95 % of {divisions} random divisions of the last step are below"
    return found


def _divisions(
    n: int, tests: int, others: int, groups: Labels | None, divisions: int, seed: int
) -> Iterator[tuple[Labels, Labels]]:
    """Positions of `others`, or a few less, and of `tests` samples of n: a group is on one side."""
    rng = rng_for(seed, "floor", n, tests, others)
    number = np.arange(n) if groups is None else np.unique(groups, return_inverse=True)[1]
    for _ in range(divisions):
        of_group = rng.permutation(int(number.max()) + 1)[number]
        order = np.argsort(of_group, kind="stable")
        start = int(np.searchsorted(of_group[order], of_group[order[tests - 1]], side="right"))
        yield order[start : start + others], order[:tests]


def _distances(
    name: str, stream: Stream, fidelity: Fidelity | None, pool: Floats, y: Labels, a: Labels, b: Labels, seed: int
) -> list[float]:
    """Of the samples at positions a and b, by each measure of a name."""
    if name != "paper":
        return [float(DISTANCES.resolve(name)(pool[a], pool[b], seed))]
    distance = transport(stream, fidelity)
    return [distance(pool[a], pool[b]), by_class(distance, pool[a], y[a], pool[b], y[b])]


def drift(stream: Stream) -> tuple[list[float], list[float] | None, str]:
    """Sliced Wasserstein distance of each step's training data to the last step's test data, its floor, and how many
    divisions that has, or why it is None. Estimated on a few hundred samples of each step and, for images, a grid of
    pixels. Raises IncompatibleStream."""
    thin = thinned(stream)
    found = floors(thin, ["sliced"])
    return distances(thin, ["sliced"])["sliced"], found["floor"]["sliced"], found["floor_because"]["sliced"]


def measured(
    stream: Stream, names: Sequence[str], labels: bool, fidelity: Fidelity | None, exact: bool,
    seed: int,
) -> dict[str, Any]:  # fmt: skip
    """Distances by name, "paper" among them; `labels`: their statistics; `warning`, and how many samples of each split
    of a large stream were used, unless exact."""
    # The transport library imports torch, JAX and others if it may: 400 MB; only arrays are given to it.
    for backend in ("PYTORCH", "JAX", "CUPY", "TENSORFLOW"):
        os.environ.setdefault(f"POT_BACKEND_DISABLE_{backend}", "1")
    used, sampled = (stream, None) if exact else affordable(stream)
    document: dict[str, Any] = measure(used, fidelity=fidelity) if "paper" in names else {}
    if others := [name for name in names if name != "paper"]:
        document |= distances(used, others, seed=seed)
    document |= floors(used, names, fidelity, seed) if names else {}
    document |= {"labels": label_statistics(stream)} if labels else {}
    document |= {"warning": note} if (note := sharing(stream)) else {}
    return document | ({} if sampled is None else {"samples_of_each_split": sampled})
