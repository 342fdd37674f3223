"""Why accuracy falls: the classes' shares, the data, or the age of the model.

A model trained at i loses R[i, i + b] − R[i, j] until step j, where b is the base lag. A fresh model, trained at j − b,
splits the loss: what it also lacks on j is the data's, what it does better there is the model's age. The data's part is
split again, into other shares of the classes and other accuracies on the same classes [Kitagawa 1955].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from driftline.eval.scoring.bands import Array, Band, Floats, Layout, band, mean, share


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


def causes(
    right: Floats, n: Floats, drawn_right: Array, drawn_n: Array, lags: npt.NDArray[np.int64],
    layout: Layout | None = None,
) -> Causes:  # fmt: skip
    """Counts (..., T, T, C) and their replicates (B, ..., T, T, C) → the causes, with leading axes as given. lags:
    (K,) from the base lag on."""
    points, draws = _parts(right, n, lags), _parts(drawn_right, drawn_n, lags)
    prior, harder, older = (
        band(p, d, layout)
        for p, d in zip(*((one[0], one[1].sum(-2), one[2].sum(-2)) for one in (points, draws)), strict=True)
    )
    drops = [one[0] + one[1].sum(-2) + one[2].sum(-2) for one in (points, draws)]
    return Causes(band(drops[0], drops[1], layout), prior, harder, older)


def _parts(right: Array, n: Array, lags: npt.NDArray[np.int64]) -> tuple[Array, Array, Array]:
    """prior (..., K), harder (..., C, K), older (..., C, K)."""
    of_class, accuracy = share(n, n.sum(-1, keepdims=True)), share(right, n)  # (..., T, T, C); NaN: not tested
    steps = right.shape[-2]
    base = int(lags[0]) if len(lags) else 0
    prior, harder, older = [], [], []
    for k in lags.tolist():
        models = np.arange(steps - k)
        cells = ((models, models + base), (models + k - base, models + k), (models, models + k))
        first, fresh, old = ((of_class[..., i, j, :], accuracy[..., i, j, :]) for i, j in cells)
        prior_data, of_data = _kitagawa(*first, *fresh)
        prior_age, of_age = _kitagawa(*fresh, *old)
        together = prior_data + prior_age  # the second is 0, but for other samples of other seeds
        of_pairs = [np.where(np.isnan(together)[..., None], np.nan, part) for part in (of_data, of_age)]
        prior.append(mean(together, -1))
        harder.append(mean(of_pairs[0], -2))
        older.append(mean(of_pairs[1], -2))
    shape = right.shape[:-3]
    if not prior:
        nothing = np.zeros((*shape, right.shape[-1], 0))
        return np.zeros((*shape, 0)), nothing, nothing
    return np.stack(prior, -1), np.stack(harder, -1), np.stack(older, -1)


def _kitagawa(share_a: Array, a: Array, share_b: Array, b: Array) -> tuple[Array, Array]:
    """Shares and accuracies (..., C) of two tests → the part (...) of Σ share·accuracy's fall that the shares explain,
    and that of each class's accuracy (..., C). A class that only one test has falls in the first part."""
    a, b = np.where(np.isnan(a), b, a), np.where(np.isnan(b), a, b)
    a, b = np.where(np.isnan(a), 0, a), np.where(np.isnan(b), 0, b)
    return ((share_a - share_b) * (a + b) / 2).sum(-1), (share_a + share_b) / 2 * (a - b)
