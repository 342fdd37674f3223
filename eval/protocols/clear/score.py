"""CLEAR's five scores from rows [CLEAR, supplement 3, equations 1–5].

R[i, j] is the accuracy on step j after learning step i. Backward transfer is an accuracy here, not the
difference of GEM.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import zip_longest

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


Places = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]


@lru_cache(maxsize=64)
def lower(size: int, k: int) -> Places:
    """Rows and columns of a lower triangle; a report asks for the same ones thousands of times."""
    return np.tril_indices(size, k)


@lru_cache(maxsize=64)
def upper(size: int) -> Places:
    """Those above the diagonal."""
    return np.triu_indices(size, 1)


def in_domain(r: Matrix) -> float:
    """Equation 4: mean of the diagonal."""
    return float(np.diag(r).mean())


def next_domain(r: Matrix) -> float:
    """Equation 5: mean of the superdiagonal."""
    return float(np.diag(r, 1).mean())


def accuracy(r: Matrix) -> float:
    """Equation 1: mean of diagonal and lower triangle."""
    return float(r[lower(len(r), 0)].mean())


def backward(r: Matrix) -> float:
    """Equation 2: mean of the strict lower triangle."""
    return float(r[lower(len(r), -1)].mean())


def forward(r: Matrix) -> float:
    """Equation 3: mean of the strict upper triangle.

    >>> forward(np.array([[1.0, 0.5], [1.0, 1.0]]))
    0.5
    """
    return float(r[upper(len(r))].mean())


IID: dict[Score, Callable[[Matrix], float]] = {
    Score("in_domain", "in-domain"): in_domain,
    Score("next_domain", "next-domain"): next_domain,
    Score("accuracy", "accuracy"): accuracy,
    Score("backward", "backward transfer"): backward,
    Score("forward", "forward transfer"): forward,
}
STREAMING = {kind: function for kind, function in IID.items() if kind.name in ("next_domain", "forward")}
