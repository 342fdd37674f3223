"""Distances between steps with what chance alone gives: the distance between two random parts of their samples."""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from driftline.curate.core.seeding import rng_for
from driftline.stream_builder.measures import DISTANCES
from driftline.stream_builder.measures.shift_distance import (
    VARIANCE,
    Fidelity,
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
from driftline.stream_builder.stream import Split, Stream

DIVISIONS, FEWEST = 200, 20  # random ones; of fewer, none is so rare as one in twenty
PAIRS, PAIRS_OF_PAGE = 20_000_000, 4_000_000  # of points, of all divisions: about ten and two seconds
SLICED = 20  # pairs that take as long as a point along random directions
FEWEST_GROUPS = 10  # on both sides together
THINNED = 200  # samples of a step that a page measures


def floors(
    stream: Stream, names: Sequence[str], fidelity: Fidelity | None = None, seed: int = 0, pairs: int = PAIRS
) -> dict[str, Any]:
    """{"floor": name of a measure → a value for each of its steps that 95 % of random divisions stay below, None if it
    is not known; "floor_because": name → how many divisions, or why it is not known}.

    A division mixes the step's training samples with the last step's test samples and deals them out again: as many
    tests as there were, groups together. Without drift, one distance in twenty is above its floor, whatever the
    distance, the distribution and the sizes. Divisions of the last step alone would not do: in 20 dimensions or with
    heavy tails, exact transport passed them in 24 and 28 % of worlds without drift (80 each, 28 November 2026).

    names, fidelity: as of `measured`. pairs: of points that are looked at. Raises IncompatibleStream.
    """
    trains, test = train_and_test(stream)
    found: dict[str, Any] = {"floor": {}, "floor_because": {}}
    for name in names:
        parts = ["covariate", "conditional"] if name == "paper" else [name]
        steps = trains[:-1] if name == "paper" else trains
        work = sum(SLICED * (len(t) + len(test)) if name == "sliced" else len(t) * len(test) for t in steps)
        divisions = min(DIVISIONS, pairs // work)
        groups = [_groups(train, test) for train in steps]
        why = "" if divisions >= FEWEST else "it would take too long"
        why = why if min(len(np.unique(of)) for of in groups) >= FEWEST_GROUPS else "a step has too few groups"
        if why:
            found["floor"] |= dict.fromkeys(parts)
            found["floor_because"] |= dict.fromkeys(parts, f"not known, {why}")
            continue
        points, target = project(trains, test, VARIANCE if name == "paper" else 1.0)
        of = _measures(name, stream, fidelity, seed)
        own = of(points[-1], trains[-1].y, target, test.y) if name == "paper" else [1.0]
        rank = int(np.ceil(0.95 * (divisions + 1))) - 1
        ends = []
        for t, group in zip(range(len(steps)), groups, strict=True):
            pool, y = np.concatenate([points[t], target]), np.concatenate([trains[t].y, test.y])
            drawn = [of(pool[a], y[a], pool[b], y[b]) for a, b in _divisions(group, len(test), divisions, seed)]
            ends.append(np.sort(drawn, axis=0)[rank] / own)
        found["floor"] |= {part: [float(end[k]) for end in ends] for k, part in enumerate(parts)}
        found["floor_because"] |= dict.fromkeys(parts, f"95 % of {divisions} random divisions are below")
    return found


def _groups(train: Split, test: Split) -> Labels:
    """(n + m,) numbers of what stays together."""
    if train.group is None or test.group is None:
        return np.arange(len(train) + len(test))
    return np.asarray(np.unique(np.concatenate([train.group, test.group]), return_inverse=True)[1], np.int64)


def _divisions(group: Labels, tests: int, divisions: int, seed: int) -> Iterator[tuple[Labels, Labels]]:
    """Positions of the others and of `tests` samples, or a few more: a group is on one side."""
    rng = rng_for(seed, "floor", len(group), tests)
    for _ in range(divisions):
        of_group = rng.permutation(int(group.max()) + 1)[group]
        order = np.argsort(of_group, kind="stable")
        end = int(np.searchsorted(of_group[order], of_group[order[tests - 1]], side="right"))
        end = end if end < len(order) else int(np.searchsorted(of_group[order], of_group[order[-1]]))
        yield order[end:], order[:end]


def _measures(name: str, stream: Stream, fidelity: Fidelity | None, seed: int) -> Callable[..., list[float]]:
    """Function of points and labels of two sides → the values of a name's measures."""
    if name == "paper":
        distance = transport(stream, fidelity)
        return lambda a, y, b, z: [distance(a, b), by_class(distance, a, y, b, z)]
    registered = DISTANCES.resolve(name)
    return lambda a, y, b, z: [float(registered(a, b, seed))]


class Drift(NamedTuple):
    """How far each step's training data are from the last step's test data."""

    values: list[float]
    """sliced Wasserstein distances"""
    floor: list[float] | None
    """of each, see `floors`"""
    because: str
    """how many divisions it has, or why there is none"""


def drift(stream: Stream) -> Drift:
    """Estimated on a few hundred samples of each step and, for images, a grid of pixels. Raises IncompatibleStream."""
    thin = thinned(stream, THINNED)
    found = floors(thin, ["sliced"], pairs=PAIRS_OF_PAGE)
    return Drift(distances(thin, ["sliced"])["sliced"], found["floor"]["sliced"], found["floor_because"]["sliced"])


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
