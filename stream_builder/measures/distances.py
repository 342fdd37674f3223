"""Distances between two sets of samples: how far a shift moves the data.

Each says what it costs for n and m samples in d dimensions. `wasserstein2` is exact; where it does not fit, `sliced`
and `entropic` are its relatives; `mmd` compares means in a kernel's space; `two_sample` asks whether a classifier can
tell the sets apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import erf, sqrt

import numpy as np
import numpy.typing as npt

from curate.core.errors import BadArray, IncompatibleStream
from curate.core.seeding import rng_for

Points = npt.NDArray[np.float64]
ITERATIONS = 20_000_000  # the solver's default, 100,000, ends before the optimum at the paper's sizes
LARGEST = 2_000  # samples of which the median distance and the kernel's mean are taken at a time


@dataclass(frozen=True)
class Distance:
    """work(a, b, seed) → number. cost: in words."""

    work: Callable[[Points, Points, int], float]
    cost: str


def wasserstein2(a: Points, b: Points, iterations: int = ITERATIONS) -> float:
    """√(min Σ γ ‖a − b‖²) with uniform weights, exact. Cost: n m memory, about (n + m)³ at worst."""
    import ot

    cost = ot.dist(np.asarray(a, np.float64), np.asarray(b, np.float64))
    weights = [np.full(len(p), 1 / len(p)) for p in (a, b)]
    return float(np.sqrt(ot.emd2(weights[0], weights[1], cost, numItermax=iterations)))


def sliced(a: Points, b: Points, seed: int = 0, directions: int = 500) -> float:
    """√ mean over random directions of W2² along them [Bonneel et al. 2015]. Cost: (n + m)(d + log n) a direction."""
    ways = rng_for(seed, "sliced").normal(size=(a.shape[1], directions))
    ways /= np.linalg.norm(ways, axis=0, keepdims=True)
    quantiles = (np.arange(max(len(a), len(b))) + 0.5) / max(len(a), len(b))
    left, right = (np.quantile(p @ ways, quantiles, axis=0, method="inverted_cdf") for p in (a, b))
    return float(np.sqrt(((left - right) ** 2).mean()))


def entropic(a: Points, b: Points, regularisation: float = 0.02, rounds: int = 500) -> float:
    """√ of the transport cost of the plan with an entropy bonus of `regularisation` × the mean cost [Cuturi 2013];
    above the exact value. Cost: n m memory and n m a round."""
    import ot

    cost = ot.dist(np.asarray(a, np.float64), np.asarray(b, np.float64))
    weights = [np.full(len(p), 1 / len(p)) for p in (a, b)]
    plan = ot.bregman.sinkhorn_log(
        weights[0], weights[1], cost, regularisation * cost.mean(), numItermax=rounds, warn=False
    )
    return float(np.sqrt((plan * cost).sum()))


def mmd(a: Points, b: Points, seed: int = 0) -> float:
    """Unbiased squared maximum mean discrepancy with a Gaussian kernel as wide as the median distance [Gretton et al.
    2012, eq. 3]; 0 on average for equal distributions. Cost: (n + m)² d, in blocks."""
    if len(a) < 2 or len(b) < 2:
        raise IncompatibleStream("MMD compares sets of at least two samples.", f"Got {len(a)} and {len(b)}.")
    both = np.concatenate([a, b])
    some = both[rng_for(seed, "mmd").permutation(len(both))[:LARGEST]]
    width = np.median(_squares(some, some)[np.triu_indices(len(some), 1)])
    gamma = 1 / max(float(width), 1e-12)

    def mean(x: Points, y: Points, same: bool) -> float:
        total = 0.0
        for low in range(0, len(x), LARGEST):
            total += float(np.exp(-gamma * _squares(x[low : low + LARGEST], y)).sum())
        return (total - len(x)) / (len(x) * (len(x) - 1)) if same else total / (len(x) * len(y))

    return mean(a, a, True) + mean(b, b, True) - 2 * mean(a, b, False)


def _squares(x: Points, y: Points) -> Points:
    return np.asarray(np.maximum((x**2).sum(1)[:, None] + (y**2).sum(1) - 2 * x @ y.T, 0))


def two_sample(a: Points, b: Points, seed: int = 0) -> tuple[float, float]:
    """(accuracy on held-out halves of telling the sets apart, one-sided p of its being chance) [Lopez-Paz & Oquab
    2017].

    The classifier is a ridge-regularised linear discriminant; sets are cut to equal sizes. Cost: (n + m) d² + d³.
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
    spread = centred.T @ centred / len(centred)
    spread += np.eye(x.shape[1]) * max(1e-3 * np.trace(spread) / x.shape[1], 1e-12)
    way = np.linalg.solve(spread, means[1] - means[0])
    cut = (means[0] + means[1]) @ way / 2
    right = np.concatenate([a[half:] @ way <= cut, b[half:] @ way > cut])
    accuracy = float(right.mean())
    z = (accuracy - 0.5) / sqrt(0.25 / len(right))
    return accuracy, float((1 - erf(z / sqrt(2))) / 2)


def class_priors(y: npt.NDArray[np.int64], z: npt.NDArray[np.int64], classes: int) -> float:
    """Total variation between the classes' shares in two sets: 0 equal, 1 disjoint. Cost: n + m."""
    p, q = (np.bincount(v, minlength=classes) / max(1, len(v)) for v in (y, z))
    return float(np.abs(p - q).sum() / 2)


DISTANCES: dict[str, Distance] = {
    "w2": Distance(
        lambda a, b, seed: wasserstein2(a, b), "exact transport: n m memory, minutes beyond 10,000 × 10,000"
    ),
    "sliced": Distance(lambda a, b, seed: sliced(a, b, seed), "500 sorts: seconds for millions of samples"),
    "entropic": Distance(lambda a, b, seed: entropic(a, b), "n m memory, 500 rounds; above the exact value"),
    "mmd": Distance(mmd, "(n + m)² products, in blocks; squared, may be just below 0"),
    "c2st": Distance(lambda a, b, seed: two_sample(a, b, seed)[0], "one linear solve; accuracy, 0.5 is chance"),
}


def check_points(a: Points, b: Points) -> None:
    """Raise BadArray for sets that cannot be compared."""
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1] or not len(a) or not len(b):
        raise BadArray(f"Sets of shape {a.shape} and {b.shape}.", "Expected (n, d) and (m, d), neither empty.")
