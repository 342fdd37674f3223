"""CLEAR's five scores from rows [CLEAR, supplement 3, equations 1–5].

R[i, j] is the accuracy on step j after learning step i. Backward transfer is an accuracy here, not the
difference of GEM.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadInput
from driftline.eval.protocol import Roles, Score, mean_of_tests
from driftline.eval.rows import PER_CLASS, Row

Matrix = npt.NDArray[np.float64]
MOST = 10_000  # steps of a matrix: 800 MB


def step_tested(row: Row) -> int:
    """Of every row: `tested_on` is its number."""
    return int(row.tested_on)


def decisive(rows: Sequence[Row]) -> list[Row]:
    """Tests on the step after the last one learned."""
    return [row for row in rows if row.learned_to >= 0 and int(row.tested_on) == row.learned_to + 1]


ROLES = Roles(step_tested, decisive, mean_of_tests)  # next_domain


def matrix(rows: Sequence[Row], steps: int) -> Matrix:
    """Rows of one run → (T, T) float64; cells that were not tested are NaN.

    Raises BadInput for a test of no samples (an average over nothing is not 0), and for rows beyond the steps.
    """
    counts = [(row.learned_to, int(row.tested_on), row.n, row.n_correct) for row in rows]
    learned, tested, n, right = np.array(counts, np.int64).reshape(-1, 4).T
    last = max(int(learned.max(initial=-1)), int(tested.max(initial=-1)))
    if not last < steps <= MOST:
        problem = f"A run of {steps:,} steps has rows up to step {last:,}."
        raise BadInput(problem, f"Expected rows of its own steps, at most {MOST:,}.", "Evaluate again.")
    if not n.all():
        raise BadInput(f"Step {tested[n == 0][0]} was tested on no samples.", "Expected at least one.")
    cells = np.full((steps, steps), np.nan)
    after = learned >= 0
    cells[learned[after], tested[after]] = right[after] / n[after]
    return cells


def start(rows: Sequence[Row], steps: int) -> npt.NDArray[np.float64]:
    """(T,) accuracy on each step before anything was learned: chance, 1 / C, where that was not tested."""
    classes = max((len(row.class_n) for row in rows), default=0)
    cells = np.full(steps, 1 / classes if classes else np.nan)
    for row in rows:
        if row.learned_to < 0:
            cells[int(row.tested_on)] = row.n_correct / row.n
    return cells


def by_class(rows: Sequence[Row], steps: int) -> list[float | None] | None:
    """Accuracy of each class over all steps that were tested after the last step learned; None without counts."""
    last = max([row.learned_to for row in rows], default=-1)
    final = [row for row in rows if row.learned_to == last and row.class_n]
    if not final:
        return None
    counts, hits = (
        [sum(of_class) for of_class in zip_longest(*(getattr(row, name) for row in final), fillvalue=0)]
        for name in PER_CLASS
    )
    return [h / n if n else None for h, n in zip_longest(hits, counts, fillvalue=0)]


# A report asks for the same triangles thousands of times.
lower, upper = (lru_cache(maxsize=64)(places) for places in (np.tril_indices, np.triu_indices))
IID: dict[Score, Callable[[Matrix], Any]] = {  # equations 4, 5, 1, 2, 3
    Score("in_domain", "in-domain"): lambda r: np.diag(r).mean(),
    Score("next_domain", "next-domain"): lambda r: np.diag(r, 1).mean(),
    Score("accuracy", "accuracy"): lambda r: r[lower(len(r), 0)].mean(),
    Score("backward", "backward transfer"): lambda r: r[lower(len(r), -1)].mean(),
    Score("forward", "forward transfer"): lambda r: r[upper(len(r), 1)].mean(),
}
STREAMING = {kind: function for kind, function in IID.items() if kind.name in ("next_domain", "forward")}


def backward_change(r: Matrix) -> Any:
    """Mean of R[i, j] − R[j, j] over all j < i [Díaz-Rodríguez et al. 2018, eq. 3]."""
    i, j = lower(len(r), -1)
    return (r[i, j] - r[j, j]).mean()


# What other papers compute from the same matrix, under their own names; b[j]: accuracy on step j before learning.
MEASURES: dict[Score, Callable[[Matrix, Any], Any]] = {
    # Mean of R[T-1, j] − R[j, j] over j < T − 1, below 0: forgetting; of R[j-1, j] − b[j] over j ≥ 1
    # [Lopez-Paz & Ranzato 2017, eq. 3 and 4].
    Score("gem_backward", "GEM backward"): lambda r, b: (r[-1, :-1] - np.diag(r)[:-1]).mean(),
    Score("gem_forward", "GEM forward"): lambda r, b: (np.diag(r, 1) - b[1:]).mean(),
    # Of the backward change 1 − |its negative part|, and its positive part [Díaz-Rodríguez et al. 2018, eq. 4 and 5].
    Score("remembering", "remembering"): lambda r, b: 1 - abs(min(backward_change(r), 0.0)),
    Score("positive_backward", "positive backward"): lambda r, b: max(backward_change(r), 0.0),
    # Mean over j < T − 1 of the best accuracy on j before the end minus that at the end [Chaudhry et al. 2018, eq. 3].
    Score("forgetting", "forgetting", higher_is_better=False): lambda r, b: (r[:-1, :-1].max(0) - r[-1, :-1]).mean(),
    # Mean over i of the mean accuracy on steps 0 … i after step i [Rebuffi et al. 2017].
    Score("incremental_accuracy", "incremental accuracy"): lambda r, b: np.mean(
        [r[i, : i + 1].mean() for i in range(len(r))]
    ),
}
