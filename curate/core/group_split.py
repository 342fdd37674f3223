"""Which samples are tested: whole groups, drawn at random, balanced by bucket, class and size of the group.

A group (an uploader, near-duplicates) is on one side. Every group that can move is tested with about the same
probability, whatever its size, and each bucket, class and cell (bucket × class) has about its share of tests:

1. A group is too large, and stays in training, if it alone has more samples of the whole, of a bucket or of a class
   than are to be tested there, or all of them. In the cells that it leaves behind, the groups that can move are tested
   more often, but at most 1 − share of their samples (share, if that is more).
2. The others are drawn systematically in order of their size, with the probability of their cells. Groups of one sample
   then fill what their cell lacks.
3. Groups change sides, one or two at a time, while that lowers the imbalance of cells, buckets, classes, the whole, and
   the number of groups of each size.

Compared with eight other ways in the lab book (25 November 2026).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadConfig
from driftline.curate.core.late import sparse

Numbers = npt.NDArray[np.int64]
Sides = npt.NDArray[np.bool_]
FLIPS = 1e8  # groups × features that are looked at while groups change sides
TOLERANCE = 0.02  # of a cell's samples, if that is more than one sample and its largest group


@dataclass(frozen=True)
class Groups:
    """What is counted of some samples, their groups and their strata."""

    cell: Numbers
    """(N,) number of each sample's cell: the combination of its strata"""
    counts: Any
    """(G, cells) sparse: samples of each group in each cell"""
    margins: tuple[Any, ...]
    """(G, …) sparse, of the whole and of each stratum: likewise"""
    place: tuple[Numbers, ...]
    """(cells,) the column of each cell in each of `margins`"""

    @property
    def size(self) -> npt.NDArray[np.float64]:
        """(G,) samples of each group."""
        return total(self.counts, 1)


def count_groups(strata: Sequence[npt.NDArray[Any]], group: Numbers) -> Groups:
    """strata: (N,) each, such as bucket and class. group: (N,) from 0."""
    cell = np.zeros(len(group), np.int64)
    columns = [np.zeros(len(group), np.int64)]
    for stratum in strata:
        number = np.unique(stratum, return_inverse=True)[1].astype(np.int64)
        columns.append(number)
        cell = cell * (number.max(initial=0) + 1) + number
    _, first, cell = np.unique(cell, return_index=True, return_inverse=True)
    cell = cell.astype(np.int64)
    n_groups = int(group.max(initial=-1)) + 1

    def table(column: Numbers) -> Any:
        shape = (n_groups, int(column.max(initial=-1)) + 1)
        counts = sparse.csr_matrix((np.ones(len(group)), (group, column)), shape=shape)
        counts.sum_duplicates()
        return counts

    return Groups(cell, table(cell), tuple(map(table, columns)), tuple(column[first] for column in columns))


def total(counts: Any, axis: int) -> npt.NDArray[np.float64]:
    """Sums of a sparse matrix."""
    return np.asarray(counts.sum(axis), np.float64).ravel()


def too_large(groups: Groups, share: float) -> Sides:
    """(G,) True for groups that alone exceed the tests of the whole or of a stratum; see the module."""
    large = np.zeros(groups.counts.shape[0], bool)
    for margin in groups.margins:
        n = total(margin, 0)
        limit = np.minimum(np.maximum(1, np.ceil(share * n - 1e-9)), n - 1)
        entries = margin.tocoo()
        large[entries.row[entries.data > limit[entries.col]]] = True
    return large


def draw_sides(
    strata: Sequence[npt.NDArray[Any]],
    group: npt.NDArray[Any],
    share: float,
    rng: np.random.Generator,
    fixed: npt.NDArray[np.int8] | None = None,
) -> Sides:
    """(N,) True for test samples.

    strata: (N,) each, such as bucket and class. group: (N,) names or numbers. share: of each cell that is to be tested.
    fixed: (N,) 1 and 0 for samples whose group has its side already, −1 for the others. The draw depends on the set of
    samples with their names of groups, not on their order. Raises BadConfig for a share outside 0 … 1.
    """
    if not 0 <= share < 1:
        raise BadConfig(f"The share of test samples is {share}.", "Expected a number from 0 to below 1.")
    if not len(group) or not share:
        return np.zeros(len(group), bool)
    _, number = np.unique(group, return_inverse=True)
    number = number.astype(np.int64)
    counted = count_groups(strata, number)
    side, free = np.zeros(counted.counts.shape[0], bool), ~too_large(counted, share)
    if fixed is not None:
        side[number[fixed == 1]] = True
        free[number[fixed >= 0]] = False
    if free.any():
        _draw(counted, free, side, share, rng)
    return side[number]


def _draw(groups: Groups, free: Sides, side: Sides, share: float, rng: np.random.Generator) -> None:
    """Sets the sides of the groups that are free."""
    counts, size = groups.counts, groups.size
    target = _targets(counts, free, share, total(counts[side], 0))
    chance = _chances(counts, free, target)
    features, unit = _features(groups, free, share)
    bands = total(features[free].multiply(chance[free][:, None]), 0)[sum(len(u) for u in unit[:-1]) :]
    wanted = [target, *(np.bincount(place, target) for place in groups.place), bands * unit[-1]]
    several = np.flatnonzero(free & (size > 1))
    side[several] = _systematic(several, size, chance, rng)
    single = np.flatnonzero(free & (size == 1))
    if len(single):
        side[single] = _fill(counts[single].indices, target - total(counts[free & side], 0), rng)
    imbalance = features[free].T @ side[free] - np.concatenate(wanted) / np.concatenate(unit)
    _improve(features, np.flatnonzero(free), side, imbalance, rng)


def _targets(counts: Any, free: Sides, share: float, tested: Any = 0) -> npt.NDArray[np.float64]:
    """(cells,) wanted tests among the groups that can move. tested: of each cell, samples that are tests already."""
    wanted = np.maximum(share * total(counts, 0) - tested, 0)
    return np.minimum(wanted, max(share, 1 - share) * total(counts[free], 0))


def _chances(counts: Any, free: Sides, target: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """(G,) probability that a group is tested: the mean rate of its cells, corrected until each cell's expected tests
    are its target."""
    chance = np.where(free, 1.0, 0.0)
    size = total(counts, 1)
    expected = total(counts[free], 0)
    for _ in range(10):
        ratio = np.divide(target, expected, out=np.zeros(len(target)), where=expected > 0)
        chance = np.minimum(chance * (counts @ ratio) / size, 0.9)
        expected = total(counts.multiply(chance[:, None]), 0)
    return np.clip(chance, 1e-6, 1 - 1e-6)


def _features(groups: Groups, free: Sides, share: float) -> tuple[Any, list[npt.NDArray[np.float64]]]:
    """(G, F) sparse: what is balanced, in units of what it may be off by; and these units.

    Cells: one sample or 2 %. The whole and strata: one sample or .4 %. The number of groups of each size (factors of
    2): .3 standard deviations of a random draw.
    """
    band = np.floor(np.log2(groups.size)).astype(np.int64)
    bands = sparse.csr_matrix((np.ones(len(band)), (np.arange(len(band)), band)))
    parts = [groups.counts, *groups.margins, bands]
    unit = [np.maximum(1, TOLERANCE * total(groups.counts, 0))]
    unit += [np.maximum(1, 0.004 * total(margin, 0)) for margin in groups.margins]
    unit += [np.maximum(0.7, 0.3 * np.sqrt(total(bands[free], 0) * share * (1 - share)))]
    return (sparse.hstack(parts) @ sparse.diags(1 / np.concatenate(unit))).tocsr(), unit


def _systematic(
    groups: Numbers, size: npt.NDArray[np.float64], chance: npt.NDArray[np.float64], rng: np.random.Generator
) -> Sides:
    """Sides of `groups`: in order of their size (factors of 2), at random where that is the same, a group is tested
    where the sum of the probabilities passes the next number + a random start."""
    order = np.lexsort((rng.random(len(groups)), -np.floor(np.log2(size[groups]))))
    passed = np.floor(np.cumsum(chance[groups][order]) + rng.random())
    side = np.zeros(len(groups), bool)
    side[order] = np.diff(passed, prepend=0) > 0
    return side


def _fill(cell: Numbers, wanted: npt.NDArray[np.float64], rng: np.random.Generator) -> Sides:
    """Sides of single samples: of each cell as many random ones as are wanted, rounded at random."""
    available = np.bincount(cell, minlength=len(wanted))
    n = np.clip(np.floor(wanted + rng.random(len(wanted))), 0, available).astype(np.int64)
    shuffled = rng.permutation(len(cell))
    shuffled = shuffled[np.argsort(cell[shuffled], kind="stable")]
    first = np.cumsum(available) - available
    place = np.empty(len(cell), np.int64)
    place[shuffled] = np.arange(len(cell)) - first[cell[shuffled]]
    return place < n[cell]


def _improve(
    features: Any, groups: Numbers, side: Sides, imbalance: npt.NDArray[np.float64], rng: np.random.Generator
) -> None:
    """One group, or a random one and its best partner, changes sides, again and again, while the sum of squares of the
    imbalance gets smaller. Of single ones, the best of a random half."""
    part, sides = features[groups], side[groups]
    squares = total(part.multiply(part), 1)
    failed = 0
    for _ in range(min(3000, 40 + int(FLIPS / max(1, part.nnz)))):
        sign = np.where(sides, -1, 1)
        change = 2 * sign * (part @ imbalance) + squares
        if failed < 3:
            first = -1
            change[rng.random(len(groups)) < 0.5] = np.inf
        else:
            first = int(rng.integers(len(groups)))
            change += change[first] + 2 * sign * sign[first] * total(part @ part[first].T, 1)
            change[first] = np.inf
        best = int(change.argmin())
        if change[best] > -1e-9:
            failed += 1
            if failed == 40:
                break
            continue
        failed = 0
        for moved in {best, first} - {-1}:
            imbalance = imbalance + sign[moved] * part[moved].toarray().ravel()
            sides[moved] = ~sides[moved]
    side[groups] = sides


def describe_splits(
    strata: Mapping[str, npt.NDArray[Any]],
    group: npt.NDArray[Any],
    sides: Mapping[str, npt.NDArray[np.bool_]],
    share: float,
) -> dict[str, Any]:
    """What a reader must know of published splits.

    strata: name → (N,) values, such as bucket and class. group: (N,). sides: split → (N,) True for test samples. share:
    as asked. The keys:

    groups, cells: how many there are
    too_large: groups that stay in training, and their samples, the ten largest
    splits: for each split
        share: of all samples
        cells: least and largest share of a cell
        missed: cells that are off by more than one sample, 2 %, and their largest group that can move
        untested: values of each stratum without a test
        group_sizes: of each side, of groups that can move: number, mean, median
    overlap: of each pair of splits, the share of their tests that both have; 1: they are the same draw
    """
    names, number = np.unique(group, return_inverse=True)
    number = number.astype(np.int64)
    counted = count_groups(list(strata.values()), number)
    large, size = too_large(counted, share), counted.size.astype(np.int64)
    n_cells = counted.counts.shape[1]
    samples = np.bincount(counted.cell, minlength=n_cells)
    first = np.unique(counted.cell, return_index=True)[1]
    parts = counted.counts[~large].tocsc()
    widest = np.zeros(n_cells) if not (~large).any() else np.asarray(parts.max(0).todense()).ravel()
    allowed = np.maximum(np.maximum(1, TOLERANCE * samples), widest)
    order = np.argsort(-size[large], kind="stable")
    out: dict[str, Any] = {
        "asked": share,
        "groups": len(names),
        "cells": n_cells,
        "too_large": {
            "groups": int(large.sum()),
            "samples": int(size[large].sum()),
            "largest": [{"group": str(names[large][i]), "samples": int(size[large][i])} for i in order[:10].tolist()],
        },
        "splits": {},
        "overlap": [],
    }
    for name, side in sides.items():
        tests = np.bincount(counted.cell, side, minlength=n_cells)
        off = np.flatnonzero(np.abs(tests - share * samples) > allowed + 1e-9)
        tested = np.zeros(len(names), bool)
        tested[number[side]] = True
        out["splits"][name] = {
            "share": float(side.mean()) if len(side) else 0.0,
            "cells": [float(v) for v in ((tests / samples).min(), (tests / samples).max())] if n_cells else [],
            "missed": [
                {k: v[first[c]].item() for k, v in strata.items()}
                | {"tests": int(tests[c]), "samples": int(samples[c])}
                for c in off.tolist()
            ],
            "untested": {
                k: np.setdiff1d(np.unique(values), np.unique(values[side])).tolist()
                for k, values in strata.items()
            },
            "group_sizes": {
                which: _sizes(size[~large & (tested == (which == "test"))]) for which in ("train", "test")
            },
        }  # fmt: skip
    for i, (a, one) in enumerate(sides.items()):
        for b, other in list(sides.items())[:i]:
            either = max(1, int(one.sum() + other.sum()))
            out["overlap"].append({"splits": [b, a], "shared": 2 * int((one & other).sum()) / either})
    return out


def _sizes(size: Numbers) -> dict[str, float]:
    if not len(size):
        return {"groups": 0, "mean": 0.0, "median": 0.0}
    return {"groups": len(size), "mean": float(size.mean()), "median": float(np.median(size))}
