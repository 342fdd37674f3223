"""Why accuracy falls: the classes' shares, the data, or the age of the model.

A model trained at i loses R[i, i + b] − R[i, j] until step j, where b is the base lag. A fresh model, trained at j − b,
splits the loss: what it also lacks on j is the data's, what it does better there is the model's age. The data's part is
split again, into other shares of the classes and other accuracies on the same classes [Kitagawa 1955].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from driftline.eval.scoring.bands import Array, Band, share
from driftline.eval.scoring.pairs import Pairs


@dataclass(frozen=True)
class Causes:
    """Where a drop comes from, by lag: drop = prior + harder + older, to rounding. K lags from the base lag on."""

    drop: Band
    """(K,) what the same models lose, mean over pairs"""
    prior: Band
    """(K,) the tests have other shares of the classes"""
    harder: Band
    """(K,) fresh models fail there, too, on the same classes"""
    older: Band
    """(K,) what fresh models do better on the same tests"""


def causes(right: Array, n: Array, pairs: Pairs) -> dict[str, Array]:
    """Counts (..., M, C) → (..., K) by name, of the lags from the base lag on."""
    of_class, accuracy = share(n, n.sum(-1, keepdims=True)), share(right, n)  # NaN: not tested
    cells = [
        tuple(np.where((places >= 0)[:, None], one[..., places, :], np.nan) for one in (of_class, accuracy))
        for places in (pairs.first[pairs.later], pairs.twin[pairs.later], np.arange(len(pairs.model))[pairs.later])
    ]
    prior_data, of_data = _kitagawa(*cells[0], *cells[1])
    prior_age, of_age = _kitagawa(*cells[1], *cells[2])
    prior = prior_data + prior_age  # the second is 0, but for other samples of other seeds
    of_data, of_age = (np.where(np.isnan(prior), np.nan, part.sum(-1)) for part in (of_data, of_age))
    prior, harder, older = (pairs.means(part, pairs.base) for part in (prior, of_data, of_age))
    return {"drop": prior + harder + older, "prior": prior, "harder": harder, "older": older}


def _kitagawa(share_a: Array, a: Array, share_b: Array, b: Array) -> tuple[Array, Array]:
    """Shares and accuracies (..., C) of two tests → the part (...) of Σ share·accuracy's fall that the shares explain,
    and that of each class's accuracy (..., C). A class that only one test has falls in the first part."""
    a, b = np.where(np.isnan(a), b, a), np.where(np.isnan(b), a, b)
    a, b = np.where(np.isnan(a), 0, a), np.where(np.isnan(b), 0, b)
    return ((share_a - share_b) * (a + b) / 2).sum(-1), (share_a + share_b) / 2 * (a - b)
