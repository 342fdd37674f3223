"""How much shift: distances from each step's training data to the last step's test data, priors, label correlation.

[Seq-to-Final, sec. 2.3, table 5]: PCA on the stacked training data of all steps, at most 100 components and no more
than explain 95 % of the variance; exact optimal transport with squared Euclidean cost; square root. Covariate distance
on all samples, conditional distance as the mean over labels, weighted by the test data's frequencies. Both are divided
by the last step's own distance from training to test data. Other distances are taken the same way, but not divided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from curate.core.errors import IncompatibleStream, UnknownName
from stream_builder.measures.distances import DISTANCES, ITERATIONS, check_points, class_priors, wasserstein2
from stream_builder.measures.label_correlation import autocorrelation, blind_curve
from stream_builder.stream import Split, Stream

Floats = npt.NDArray[np.float64]
DEFAULT_ITERATIONS = 100_000  # the solver's own, with which the paper's covariate values were made


def measure(
    stream: Stream,
    components: int = 100,
    variance: float = 0.95,
    fidelity: Literal["clean", "paper-code"] | None = None,
) -> dict[str, Any]:
    """{"covariate": [d(0, T) … d(T-1, T)], "conditional": […]}, each divided by d(T, T)'s train-to-test distance.

    fidelity: "paper-code" ends the solver where the reference's did, before its optimum [spec, section 5]; None: as the
    stream was made. Cost: exact transport of n × m samples takes O(n m) memory and minutes beyond some 10,000 × 10,000.
    """
    how = fidelity or stream.facts.get("fidelity", "clean")
    distance = partial(wasserstein2, iterations=DEFAULT_ITERATIONS if how == "paper-code" else ITERATIONS)
    trains, test = _ends(stream)
    points, target = projected(trains, test, components, variance)
    covariate = [distance(p, target) for p in points]
    labels, counts = np.unique(test.y, return_counts=True)
    conditional = []
    for p, train in zip(points, trains, strict=True):
        total = 0.0
        for label, n in zip(labels.tolist(), counts.tolist(), strict=True):
            here = p[train.y == label]
            if not len(here):
                raise IncompatibleStream(
                    f"A step of {stream.name!r} has no training sample of class {label}.",
                    "",
                    "Measure with labels that all steps have.",
                )
            total += n / len(test) * distance(here, target[test.y == label])
        conditional.append(total)
    return {
        "covariate": [c / covariate[-1] for c in covariate[:-1]],
        "conditional": [c / conditional[-1] for c in conditional[:-1]],
    }


def distances(stream: Stream, names: Sequence[str], components: int = 100, seed: int = 0) -> dict[str, list[float]]:
    """Name of a distance → its value from each step's training data to the last step's test data, in PCA's space.

    Raises UnknownName, IncompatibleStream.
    """
    if unknown := [n for n in names if n not in DISTANCES]:
        told = "; ".join(f"{name} ({d.cost})" for name, d in DISTANCES.items())
        raise UnknownName(f"There is no distance {unknown[0]!r}.", f"Known: {told}.")
    trains, test = _ends(stream)
    points, target = projected(trains, test, components, 1.0)
    for p in points:
        check_points(p, target)
    return {name: [DISTANCES[name].work(p, target, seed) for p in points] for name in names}


def drift(stream: Stream) -> list[float]:
    """Sliced Wasserstein distance of each step's training data to the last step's test data, estimated on a few hundred
    samples of each and a grid of pixels."""
    return distances(thinned(stream), ["sliced"])["sliced"]


def thinned(stream: Stream, most: int = 300, edge: int = 16) -> Stream:
    """At most `most` samples of each split, evenly spaced, flat; of pictures, some `edge` × `edge` pixels."""

    def thin(split: Split) -> Split:
        here = np.unique(np.linspace(0, len(split) - 1, min(most, len(split))).astype(np.int64))
        part = split.take(here)
        x = np.asarray(part.x)
        if x.ndim == 4:
            x = x[:, :: -(-x.shape[1] // edge), :: -(-x.shape[2] // edge)]
        return Split(x.astype(np.float32).reshape(len(here), -1), part.y, part.ids)

    steps = [replace(s, splits={name: thin(split) for name, split in s.splits.items()}) for s in stream.steps]
    return replace(stream, steps=steps, oracle=None)


def label_facts(stream: Stream) -> dict[str, Any]:
    """Drift of the classes' shares from each step to the last, and what labels in order tell of the next ones."""
    trains = [step["train"] for step in stream.steps]
    y = np.concatenate([t.y for t in trains])
    n = len(stream.classes)
    shifts = (0, *(2**e for e in range(1, 18) if 2**e < len(y) // 4))
    ks = tuple(k for k in (1, 2, 5, 10, 50, 250, 1000) if k <= max(1, len(y) // 4))
    curve = blind_curve(y, shifts, ks)
    return {
        "priors": [class_priors(t.y, trains[-1].y, n) for t in trains[:-1]],
        "autocorrelation": {str(lag): value for lag, value in autocorrelation(y).items()},
        "blind": curve.plain(),
        "suggested_shift": curve.suggested,
    }


def _ends(stream: Stream) -> tuple[list[Split], Split]:
    trains = [step["train"] for step in stream.steps]
    if len(trains) < 2:
        raise IncompatibleStream(f"The stream {stream.name!r} has one step.", "Expected at least two.")
    test = stream.steps[-1]["test"]
    if not len(test) or not all(len(t) for t in trains):
        raise IncompatibleStream(f"The stream {stream.name!r} has an empty split.", "Expected samples in every step.")
    return trains, test


def projected(trains: Sequence[Split], test: Split, components: int, variance: float) -> tuple[list[Floats], Floats]:
    """Training points of each step and the test points, on the principal axes of the training data."""
    flat = [np.asarray(s.x, np.float32).reshape(len(s), -1) for s in (*trains, test)]
    mean, axes = principal(np.concatenate(flat[:-1]), components, variance)
    *points, target = ((f - mean) @ axes for f in flat)
    return points, target


def principal(x: npt.NDArray[np.float32], components: int, variance: float) -> tuple[Any, Any]:
    """Mean (D,) and principal axes (D, k) of x (N, D): the fewest that explain `variance`, at most `components`."""
    mean = x.mean(0, dtype=np.float64).astype(np.float32)
    centred = x - mean
    values, vectors = np.linalg.eigh((centred.T @ centred).astype(np.float64))
    values, vectors = values[::-1], vectors[:, ::-1]
    enough = int(np.searchsorted(np.cumsum(values) / values.sum(), variance)) + 1
    return mean, vectors[:, : min(components, enough)]
