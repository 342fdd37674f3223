"""How much shift: Wasserstein-2 distances from each step's training data to the last step's test data.

[Seq-to-Final, sec. 2.3, table 5]: PCA on the stacked training data of all steps, at most 100 components and no more
than explain 95 % of the variance; exact optimal transport with squared Euclidean cost; square root. Covariate distance
on all samples, conditional distance as the mean over labels, weighted by the test data's frequencies. Both are divided
by the last step's own distance from training to test data.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from curate.ground.errors import Unfit
from stream_builder.stream import Stream

Floats = npt.NDArray[np.float64]
ITERATIONS = 20_000_000  # the solver's default, 100,000, ends before the optimum at the paper's sizes


def measure(stream: Stream, components: int = 100, variance: float = 0.95) -> dict[str, Any]:
    """{"covariate": [d(0, T) … d(T-1, T)], "conditional": […]}, each divided by d(T, T)'s train-to-test distance.

    Cost: exact transport of n × m samples takes O(n m) memory and minutes beyond some 10,000 × 10,000.
    """
    last = stream.steps[-1]
    test = last["test"]
    trains = [step["train"] for step in stream.steps]
    if len(trains) < 2:
        raise Unfit(f"The stream {stream.name!r} has one step.", "Expected at least two.")
    flat = [np.asarray(s.x, np.float32).reshape(len(s), -1) for s in (*trains, test)]
    mean, axes = principal(np.concatenate(flat[:-1]), components, variance)
    *points, target = ((f - mean) @ axes for f in flat)
    covariate = [wasserstein2(p, target) for p in points]
    conditional = []
    labels, counts = np.unique(test.y, return_counts=True)
    for p, train in zip(points, trains, strict=True):
        total = 0.0
        for label, n in zip(labels.tolist(), counts.tolist(), strict=True):
            here = p[train.y == label]
            if not len(here):
                raise Unfit(
                    f"A step of {stream.name!r} has no training sample of class {label}.",
                    "",
                    "Measure with labels that all steps have.",
                )
            total += n / len(test) * wasserstein2(here, target[test.y == label])
        conditional.append(total)
    return {
        "covariate": [c / covariate[-1] for c in covariate[:-1]],
        "conditional": [c / conditional[-1] for c in conditional[:-1]],
    }


def principal(x: npt.NDArray[np.float32], components: int, variance: float) -> tuple[Any, Any]:
    """Mean (D,) and principal axes (D, k) of x (N, D): the fewest that explain `variance`, at most `components`."""
    mean = x.mean(0, dtype=np.float64).astype(np.float32)
    centred = x - mean
    values, vectors = np.linalg.eigh((centred.T @ centred).astype(np.float64))
    values, vectors = values[::-1], vectors[:, ::-1]
    enough = int(np.searchsorted(np.cumsum(values) / values.sum(), variance)) + 1
    return mean, vectors[:, : min(components, enough)]


def wasserstein2(a: Floats, b: Floats) -> float:
    """√(min Σ γ ‖a − b‖²) with uniform weights, exact."""
    import ot

    cost = ot.dist(np.asarray(a, np.float64), np.asarray(b, np.float64))
    weights = [np.full(len(p), 1 / len(p)) for p in (a, b)]
    return float(np.sqrt(ot.emd2(weights[0], weights[1], cost, numItermax=ITERATIONS)))
