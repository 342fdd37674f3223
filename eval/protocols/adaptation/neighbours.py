"""How far the order of test samples gives their labels away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

SURE = 4.0  # standard deviations above a random order: by chance once in 30,000 steps


def neighbours_of(steps: Sequence[npt.NDArray[np.int64]], batch: int) -> dict[str, Any]:
    """About the labels (N_t,) of each step in the order in which they come, in batches of `batch`; means over steps.

    "repeated": share of samples with the label of the sample before; "by_chance": the same in a random order;
    "correlated": whether it is more in any step than a random order gives (by SURE standard deviations of it);
    "majority": accuracy of an answer that gives each batch its most frequent label: no model may know it.
    """
    repeated, by_chance, right, correlated = [], [], [], False
    for y in steps:
        counts = np.bincount(y).astype(np.float64)
        n = len(y)
        chance = float(counts @ (counts - 1)) / (n * (n - 1)) if n > 1 else 1.0
        share = float(np.mean(y[1:] == y[:-1])) if n > 1 else 1.0
        spread = np.sqrt(max(chance * (1 - chance), 0) / max(n - 1, 1))
        correlated |= bool(share > chance + SURE * spread + 1e-12)
        repeated.append(share)
        by_chance.append(chance)
        right.append(sum(int(np.bincount(y[low : low + batch]).max()) for low in range(0, n, batch)) / n)
    means = {"repeated": repeated, "by_chance": by_chance, "majority": right}
    return {name: round(float(np.mean(values)), 4) for name, values in means.items()} | {"correlated": correlated}
