"""Cells of a log: the accuracy of each version in each period, where enough labels have come."""

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadInput
from driftline.eval.logs.labels import Chosen, at_constant_mix, chosen_by_score, pending_of
from driftline.eval.logs.periods import Periods
from driftline.eval.logs.reading import NONE, Log
from driftline.eval.scoring.bands import Floats, Z, share, student

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
LEAST = 10  # labels of a cell with a number
CHUNK = 1 << 20  # predictions whose periods are found at once
DENSE = 1 << 25  # numbers of a table of cells and groups
MOST = 2_000  # cells: their covariances are a square table


@dataclass(frozen=True)
class Cells:
    """K pairs of a version and a period with predictions, in order of version, then period."""

    version: Ints
    """(K,) number"""
    period: Ints
    """(K,) number"""
    lag: Ints
    """(K,) periods since the one in which the version's training data ends; below 0: before"""
    rows: Ints
    """(K,) predictions"""
    labelled: Ints
    """(K,)"""
    right: Ints
    """(K,)"""
    accuracy: Floats
    """(K,) share of the labels, weighted by score if `labels` is "weighted"; NaN: fewer than `LEAST`"""
    effective: Floats
    """(K,) as many independent labels say as much"""
    low: Floats
    high: Floats
    """(K,) Wilson's interval, 95 %"""
    pending: Bools
    """(K,) more labels are to come"""
    late: Literal["", "wrong", "right"]
    """which answers' labels come later than those of others"""
    labels: Chosen
    """how labelled rows were chosen: at random as far as scores show, by score ("weighted"), or "only": by score, with
    scores of which no label is known"""
    fixed: Floats
    """(K,) accuracy of usable cells at one mix of classes and groups for all; NaN: others"""
    moved: float
    """share of the labels by which that mix differs between the first period and the last one"""
    chance: float
    """share of the labels, in cells that count, that are of the most frequent class: of one cell it is too uncertain"""
    of: npt.NDArray[np.int32]
    """(N,) number of the cell of each prediction of the log"""

    def __len__(self) -> int:
        return len(self.version)

    @property
    def usable(self) -> Bools:
        """(K,) cells that count: a number, nothing pending, not before the end of the training data."""
        return np.isfinite(self.accuracy) & ~self.pending & (self.lag >= 0)


def rows_of_cells(cells: Cells) -> list[Ints]:
    """(K,) the rows of the log that are in each cell."""
    of = cells.of.astype(np.min_scalar_type(len(cells)))  # of small numbers: a radix sort
    return np.split(np.argsort(of, kind="stable"), np.cumsum(cells.rows)[:-1])


def cells_of(log: Log, periods: Periods, trained: Ints, now: int) -> Cells:
    """trained (V,): number of the period in which each version's training data ends. now: seconds UTC. Raises BadInput
    for more than `MOST` cells that count."""
    width, parts = len(log.versions), len(periods)
    number = np.empty(len(log), np.int32)
    for start in range(0, len(log), CHUNK):
        number[start : start + CHUNK] = periods.number(log.time[start : start + CHUNK])
    waits, late = pending_of(log, number, parts, now)
    of = log.version * np.int32(parts) + number
    there = np.flatnonzero(np.bincount(of, minlength=width * parts))
    cell = np.full(width * parts, NONE, np.int32)
    cell[there] = np.arange(len(there))
    of, size = cell[of], len(there)
    version, period = there // parts, there % parts
    labelled = log.label != NONE
    hit = labelled & (log.label == log.prediction)
    rows, n, right = (np.bincount(of[chosen], minlength=size) for chosen in (slice(None), labelled, hit))
    lag = period - trained[version]
    use = (n >= LEAST) & ~waits[period] & (lag >= 0)
    if use.sum() > MOST:
        problem = f"The log has {int(use.sum()):,} cells of a version and a {periods.unit}."
        raise BadInput(problem, f"Expected at most {MOST:,}.", "Give a longer --period.")
    accuracy = np.where(n >= LEAST, share(right, n), np.nan)
    chosen, weighted, design = chosen_by_score(log, of, labelled, hit, use)
    accuracy = np.where(use & np.isfinite(weighted), weighted, accuracy)
    of_groups, clusters = _clusters(log, of, labelled, hit, n, right)
    effective = n / design / of_groups
    low, high = wilson(accuracy, effective, clusters)
    fixed, moved = at_constant_mix(log, of, period, use)
    if chosen == "weighted":
        fixed = accuracy  # shares of labelled rows are no mix of all rows
    often = int(np.bincount(log.label[labelled], minlength=1).argmax()) if labelled.any() else NONE
    common = np.bincount(of[labelled & (log.label == often)], minlength=size)
    cells = Cells(
        version, period, lag, rows, n, right, accuracy, effective, low, high, waits[period], late, chosen,
        np.where(use, fixed, np.nan), moved, math.nan, of,
    )  # fmt: skip
    return replace(cells, chance=float(common[use].sum() / max(n[use].sum(), 1)))


def wilson(share: Floats, n: Floats, clusters: Floats | None = None) -> tuple[Floats, Floats]:
    """Ends (K,) of Wilson's 95 % interval of shares (K,) of n (K,); NaN of nothing. clusters (K,): their number widens
    the interval as Student's t does.

    >>> [round(float(end), 4) for end in wilson(np.array(0.78), np.array(1000.0))]
    [0.7533, 0.8046]
    """
    z = np.full(np.shape(share), Z) if clusters is None else np.where(np.isfinite(clusters), student(clusters), Z)
    with np.errstate(invalid="ignore", divide="ignore"):
        size = z**2 / n
        centre = (share + size / 2) / (1 + size)
        half = z / (1 + size) * np.sqrt(share * (1 - share) / n + size / (4 * n))
    return np.maximum(centre - half, 0), np.minimum(centre + half, 1)


def _clusters(
    log: Log, of: npt.NDArray[np.int32], labelled: Bools, hit: Bools, n: Ints, right: Ints
) -> tuple[Floats, Floats]:
    """The design effect of each cell, and its number of groups as if of equal size.

    The effect is 1 + (m − 1) ρ, with m the mean size of the group of a label [Kish 1965, sec. 5.4]; one ρ for all
    cells, from the sums of squares over groups.
    """
    size = len(n)
    if log.group is None:
        return np.ones(size), np.full(size, np.nan)
    alone = log.group[labelled] == NONE
    group = np.where(alone, len(log.groups) + np.cumsum(alone), log.group[labelled])
    at = of[labelled]
    width = int(group.max(initial=0)) + 1
    pair = at.astype(np.int64) * width + group
    if size * width > DENSE:
        pair = np.unique(pair, return_inverse=True)[1]
    n_of = np.bincount(pair)
    cell = np.zeros(len(n_of), np.int64)
    cell[pair] = at
    there = n_of > 0
    members, hits, cell = n_of[there].astype(np.float64), np.bincount(pair, hit[labelled])[there], cell[there]
    p = share(right, n)
    groups = np.bincount(cell, minlength=size)
    apart = np.bincount(cell, (hits - p[cell] * members) ** 2, size) * groups / np.maximum(groups - 1, 1)
    squares = np.bincount(cell, members**2, size)
    mean_size = squares / np.maximum(n, 1)
    several = groups > 1
    single = np.where(several, np.nan_to_num(p * (1 - p)) * n, 0)
    more = float((single * np.maximum(mean_size - 1, 0)).sum())
    likeness = float(np.clip((apart[several].sum() - single.sum()) / more, 0, 1)) if more > 0 else 0.0
    design = 1 + np.maximum(mean_size - 1, 0) * likeness
    return design, np.where(n > 0, n / np.maximum(mean_size, 1e-9), np.nan)
