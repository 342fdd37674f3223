"""Distances between two sets of samples a (n, d) and b (m, d): how far a shift moves the data.

`wasserstein2` is exact; for large sets use `sliced` or `entropic`, which approximate it. `mmd` compares means in a
kernel space; `c2st` is the accuracy of a classifier that separates the sets.
"""

from __future__ import annotations

from math import erf, sqrt

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadArray, IncompatibleStream
from driftline.curate.core.seeding import rng_for

Points = npt.NDArray[np.float64]
ITERATIONS = 20_000_000  # the solver's default, 100,000, stops before the optimum at the paper's sizes
BLOCK = 2_000  # samples at a time for the kernel's mean; samples for the median distance


def wasserstein2(a: Points, b: Points, seed: int = 0, iterations: int = ITERATIONS) -> float:
    """Exact optimal transport: n m memory, minutes beyond 10,000 × 10,000.

    √(min Σ γ ‖a − b‖²) with uniform weights; time is about (n + m)³ at worst.
    """
    import ot

    cost = ot.dist(np.asarray(a, np.float64), np.asarray(b, np.float64))
    weights = [np.full(len(p), 1 / len(p)) for p in (a, b)]
    return float(np.sqrt(ot.emd2(weights[0], weights[1], cost, numItermax=iterations)))


def sliced(a: Points, b: Points, seed: int = 0, directions: int = 500) -> float:
    """Transport along 500 random directions: seconds for millions of samples.

    √ of the mean W2² over the directions [Bonneel et al. 2015]. Cost: (n + m)(d + log n) per direction.
    """
    axes = rng_for(seed, "sliced").normal(size=(a.shape[1], directions))
    axes /= np.linalg.norm(axes, axis=0, keepdims=True)
    quantiles = (np.arange(max(len(a), len(b))) + 0.5) / max(len(a), len(b))
    left, right = (np.quantile(points @ axes, quantiles, axis=0, method="inverted_cdf") for points in (a, b))
    return float(np.sqrt(((left - right) ** 2).mean()))


def entropic(a: Points, b: Points, seed: int = 0, regularisation: float = 0.02, rounds: int = 500) -> float:
    """Transport with entropy regularisation, above the exact value: n m memory, n m per round.

    √ of the plan's transport cost; the entropy is weighted by `regularisation` × the mean cost [Cuturi 2013].
    """
    import ot

    cost = ot.dist(np.asarray(a, np.float64), np.asarray(b, np.float64))
    weights = [np.full(len(p), 1 / len(p)) for p in (a, b)]
    plan = ot.bregman.sinkhorn_log(
        weights[0], weights[1], cost, regularisation * cost.mean(), numItermax=rounds, warn=False
    )
    return float(np.sqrt((plan * cost).sum()))


def mmd(a: Points, b: Points, seed: int = 0) -> float:
    """Squared maximum mean discrepancy: (n + m)² d, in blocks; can be slightly below 0.

    Unbiased, 0 on average for equal distributions; Gaussian kernel of the median distance's width [Gretton et al. 2012,
    eq. 3]. Raises IncompatibleStream for fewer than two samples.
    """
    if len(a) < 2 or len(b) < 2:
        raise IncompatibleStream("MMD needs at least two samples of each set.", f"Got {len(a)} and {len(b)}.")
    both = np.concatenate([a, b])
    sample = both[rng_for(seed, "mmd").permutation(len(both))[:BLOCK]]
    width = np.median(_squares(sample, sample)[np.triu_indices(len(sample), 1)])
    gamma = 1 / max(float(width), 1e-12)

    def mean(x: Points, y: Points, same: bool) -> float:
        total = 0.0
        for low in range(0, len(x), BLOCK):
            total += float(np.exp(-gamma * _squares(x[low : low + BLOCK], y)).sum())
        return (total - len(x)) / (len(x) * (len(x) - 1)) if same else total / (len(x) * len(y))

    return mean(a, a, True) + mean(b, b, True) - 2 * mean(a, b, False)


def _squares(x: Points, y: Points) -> Points:
    return np.asarray(np.maximum((x**2).sum(1)[:, None] + (y**2).sum(1) - 2 * x @ y.T, 0))


def two_sample(a: Points, b: Points, seed: int = 0) -> tuple[float, float]:
    """Classifier two-sample test: accuracy on held-out halves, and one-sided p-value [Lopez-Paz & Oquab 2017].

    A ridge-regularised linear discriminant separates the sets, which are cut to equal sizes. The p-value holds for
    independent samples, so not where several share an uploader. Cost: (n + m) d² + d³.
    Raises IncompatibleStream for fewer than four samples.
    """
    n = min(len(a), len(b))
    if n < 4:
        raise IncompatibleStream(
            "A two-sample test needs at least four samples of each set.", f"Got {len(a)} and {len(b)}."
        )
    rng = rng_for(seed, "two sample")
    a, b = a[rng.permutation(len(a))[:n]], b[rng.permutation(len(b))[:n]]
    half = n // 2
    x = np.concatenate([a[:half], b[:half]])
    means = a[:half].mean(0), b[:half].mean(0)
    centred = np.concatenate([a[:half] - means[0], b[:half] - means[1]])
    covariance = centred.T @ centred / len(centred)
    covariance += np.eye(x.shape[1]) * max(1e-3 * np.trace(covariance) / x.shape[1], 1e-12)
    axis = np.linalg.solve(covariance, means[1] - means[0])
    threshold = (means[0] + means[1]) @ axis / 2
    correct = np.concatenate([a[half:] @ axis <= threshold, b[half:] @ axis > threshold])
    accuracy = float(correct.mean())
    z = (accuracy - 0.5) / sqrt(0.25 / len(correct))
    return accuracy, float((1 - erf(z / sqrt(2))) / 2)


def c2st(a: Points, b: Points, seed: int = 0) -> float:
    """Accuracy of a linear classifier that separates the sets, 0.5 is chance: one linear solve."""
    return two_sample(a, b, seed)[0]


def class_priors(y: npt.NDArray[np.int64], z: npt.NDArray[np.int64], classes: int) -> float:
    """Total variation distance between the class frequencies of two sets of labels: 0 equal, 1 disjoint."""
    p, q = (np.bincount(v, minlength=classes) / max(1, len(v)) for v in (y, z))
    return float(np.abs(p - q).sum() / 2)


def check_points(a: Points, b: Points) -> None:
    """Raise BadArray if two sets cannot be compared."""
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1] or not len(a) or not len(b):
        raise BadArray(f"Sets of shape {a.shape} and {b.shape}.", "Expected (n, d) and (m, d), neither empty.")
