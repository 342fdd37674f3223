import numpy as np

from driftline.ext import Array


def mean_shift(a: Array, b: Array, seed: int = 0) -> float:
    """Euclidean distance of the means."""
    return float(np.linalg.norm(a.mean(0) - b.mean(0)))
