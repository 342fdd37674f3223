"""Estimates of accuracy on samples without labels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Shares = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]


def atc(source: Shares, right: npt.NDArray[np.bool_], target: Shares) -> float:
    """Average thresholded confidence: the share of target confidences above the threshold that as many source samples
    are below as are wrong [Garg et al. 2022, eq. 1-2, maximum confidence].

    source, right: confidence and correctness of held-out source samples (N,). target: confidence (M,).

    >>> atc(np.array([0.9, 0.8, 0.6, 0.5]), np.array([True, True, True, False]), np.array([0.95, 0.55, 0.4, 0.7]))
    0.5
    """
    wrong = int((~right).sum())
    ordered = np.sort(source)
    threshold = ordered[wrong] if wrong < len(ordered) else np.inf
    return float((target >= threshold).mean())


def doc(source: Shares, right: npt.NDArray[np.bool_], target: Shares) -> float:
    """Difference of confidences: source accuracy minus the loss of mean confidence [Guillory et al. 2021, sec. 3.2].

    >>> doc(np.array([0.75, 0.75]), np.array([True, False]), np.array([0.5, 0.5]))
    0.25
    """
    return float(np.clip(right.mean() - source.mean() + target.mean(), 0, 1))


def gde(one: Labels, other: Labels) -> float:
    """Generalisation disagreement equality: as often as two models of the same procedure agree [Jiang et al. 2022, eq.
    2]."""
    return float((one == other).mean())
