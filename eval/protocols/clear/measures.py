"""What other papers compute from the same accuracy matrix, under their own names.

R[i, j] is the accuracy on step j after learning step i; b[j] on step j before anything was learned.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from driftline.eval.protocol import Score
from driftline.eval.protocols.clear.score import Matrix, lower

Start = npt.NDArray[np.float64]


def gem_backward(r: Matrix, b: Start) -> float:
    """Mean of R[T-1, j] − R[j, j] over j < T − 1 [Lopez-Paz & Ranzato 2017, eq. 3]; below 0: forgetting."""
    return float((r[-1, :-1] - np.diag(r)[:-1]).mean())


def gem_forward(r: Matrix, b: Start) -> float:
    """Mean of R[j-1, j] − b[j] over j ≥ 1 [Lopez-Paz & Ranzato 2017, eq. 4]."""
    return float((np.diag(r, 1) - b[1:]).mean())


def backward_change(r: Matrix, b: Start) -> float:
    """Mean of R[i, j] − R[j, j] over all j < i [Díaz-Rodríguez et al. 2018, eq. 3]."""
    i, j = lower(len(r), -1)
    return float((r[i, j] - r[j, j]).mean())


def remembering(r: Matrix, b: Start) -> float:
    """1 − |min(backward change, 0)| [Díaz-Rodríguez et al. 2018, eq. 4]."""
    return 1 - abs(min(backward_change(r, b), 0.0))


def positive_backward(r: Matrix, b: Start) -> float:
    """max(backward change, 0) [Díaz-Rodríguez et al. 2018, eq. 5]."""
    return max(backward_change(r, b), 0.0)


def forgetting(r: Matrix, b: Start) -> float:
    """Mean over j < T − 1 of the best accuracy on j before the end minus that at the end [Chaudhry et al. 2018, eq. 3].

    >>> forgetting(np.array([[0.9, 0.5], [0.6, 0.8]]), np.zeros(2))
    0.30000000000000004
    """
    return float((r[:-1, :-1].max(0) - r[-1, :-1]).mean())


def incremental_accuracy(r: Matrix, b: Start) -> float:
    """Mean over i of the mean accuracy on steps 0 … i after step i [Rebuffi et al. 2017]."""
    return float(np.mean([r[i, : i + 1].mean() for i in range(len(r))]))


MEASURES: dict[Score, Callable[[Matrix, Start], float]] = {
    Score("gem_backward", "GEM backward"): gem_backward,
    Score("gem_forward", "GEM forward"): gem_forward,
    Score("remembering", "remembering"): remembering,
    Score("positive_backward", "positive backward"): positive_backward,
    Score("forgetting", "forgetting", higher_is_better=False): forgetting,
    Score("incremental_accuracy", "incremental accuracy"): incremental_accuracy,
}
