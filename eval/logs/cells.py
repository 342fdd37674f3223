"""Cells of a log: the accuracy of each version in each period (a year, month, week, day, or one of N equal parts),
where enough labels have come; how late labels come, by what they were chosen, of which classes and groups they are."""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadInput
from driftline.curate.core.times import CALENDAR, count_of
from driftline.curate.core.times.dates import iso
from driftline.eval.logs.reading import LATER, NONE, UNTIMED, Log
from driftline.eval.scoring.bands import Floats, share, wilson

DAY = 86_400
MONDAY = 4 * DAY  # the first Monday after 1970
WIDTHS = {"week": 7 * DAY, "day": DAY}
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Chosen = Literal["", "weighted", "only"]
Late = Literal["", "wrong", "right"]
COMPLETE = 0.95  # of the labels that a period will have, from which on it is compared
ALL = 0.99  # the same of the answers whose labels come late
UNLIKE = 0.5  # of the usual share of labels: a last period with less is pending where labels have no times
DELAYS = 2048  # bins
DIFFERENT = 3.29  # of a normal distribution: p < .001
SCORES = 10  # bins
FEW = 3  # labels of a bin of scores that can be weighted
LACKING = 0.02  # share of a cell's rows in bins with fewer, that changes little
CHUNK = 1 << 20  # predictions that are looked at at once
ROUNDS = 200  # of the fit of classes and groups
CLEARLY = 2  # times what chance moves a mix
LEAST = 10  # labels of a cell with a number
DENSE = 1 << 25  # numbers of a table of cells and groups
MOST = 2_000  # cells: their covariances are a square table


@dataclass(frozen=True)
class Periods:
    """Periods without gaps. Their numbers count from the period of the first prediction; below 0: before."""

    unit: str
    """year, month, week, day; period: parts of equal length"""
    begin: int
    """the first second of the first one, UTC"""
    width: int
    """seconds; 0: of the calendar"""
    last: int
    """the last prediction, seconds UTC"""

    def __len__(self) -> int:
        return int(self.number(self.last)) + 1

    def number(self, moment: Any) -> npt.NDArray[np.int64]:
        """Number of the period of each moment."""
        moment = np.asarray(moment, np.int64)
        if self.width:
            return np.asarray((moment - self.begin) // self.width)
        of_all, begin = (
            at.astype("datetime64[s]").astype(f"datetime64[{CALENDAR[self.unit]}]").astype(np.int64)
            for at in (moment, np.array(self.begin))
        )
        return np.asarray(of_all - begin)

    def start(self, number: int) -> int:
        """The first second of a period."""
        if self.width:
            return self.begin + number * self.width
        first = np.array(self.begin, "datetime64[s]").astype(f"datetime64[{CALENDAR[self.unit]}]")
        return int((first + number).astype("datetime64[s]").astype(np.int64))

    @property
    def days(self) -> float:
        """From the start of the first to the end of the last one."""
        return (self.start(len(self)) - self.begin) / DAY


def periods_of(time: npt.NDArray[np.int64], period: str | int) -> Periods:
    """time (N,): seconds UTC. period: year, month, week, day, or a number of parts. Raises BadConfig."""
    first, last = int(time.min()), int(time.max())
    if (parts := count_of(period)) is not None:
        return Periods("period", first, max(1, -(-(last - first + 1) // parts)), last)
    unit = str(period)
    if width := WIDTHS.get(unit, 0):
        return Periods(unit, (first - MONDAY) // width * width + MONDAY, width, last)
    begin = np.array(first, "datetime64[s]").astype(f"datetime64[{CALENDAR[unit]}]").astype("datetime64[s]")
    return Periods(unit, int(begin.astype(np.int64)), 0, last)


def day_of(moment: int) -> str:
    """
    >>> day_of(86_400)
    '1970-01-02'
    """
    return iso(moment)[:10]


def pending_of(log: Log, number: npt.NDArray[np.int32], periods: int, now: int) -> tuple[Bools, Late]:
    """number (N,): the period of each prediction. now: seconds UTC → (P,) whether a good part of the labels of a
    period is still to come, by how late the labels of earlier predictions were (Kaplan–Meier), or those of the answers
    whose labels come later; without times of labels, whether the last periods have far fewer labels."""
    rows = np.maximum(np.bincount(number, minlength=periods), 1)
    timed = (log.label_time != UNTIMED) & (log.label_time != LATER)
    if not timed.any():
        labels = np.bincount(number[log.label != NONE], minlength=periods)
        shares = labels / rows
        usual = float(np.median(shares[labels > 0])) if labels.any() else 0.0
        complete = np.flatnonzero(shares >= UNLIKE * usual)
        return np.arange(periods) > (int(complete[-1]) if len(complete) else -1), ""
    scale = DELAYS / max(1, now - int(log.time.min()) + 1)
    age = np.clip(((now - log.time) * scale).astype(np.int32), 0, DELAYS - 1)
    delay = np.clip(((log.label_time[timed] - log.time[timed]) * scale).astype(np.int32), 0, DELAYS - 1)
    events = np.bincount(delay, minlength=DELAYS)
    open_ = np.bincount(age[log.label_time == LATER], minlength=DELAYS)
    at_risk = np.cumsum((events + open_)[::-1])[::-1]
    left = np.cumprod(1 - events / np.maximum(at_risk, 1))
    come, enough = (1 - left) / max(1 - left[-1], 1e-12), COMPLETE
    late, of_late = _late(delay, age[timed], (log.label == log.prediction)[timed])
    if late:
        come, enough = of_late, ALL
    return np.asarray(np.bincount(number, come[age], periods) / rows < enough), late


def _late(delay: Any, age: Any, right: Bools) -> tuple[Late, Floats]:
    """Delays, ages and answers of labels (N,) → whose come later by a log-rank test [Mantel 1966], and the share of
    these that has come at each age. Of predictions that are older than all delays, else of the older half."""
    old = age >= delay.max()
    if old.sum() < old.size / 4:
        old = age >= np.median(age)
    counts = [np.bincount(delay[old & of], minlength=DELAYS) for of in (~right, right)]
    at_risk = [np.cumsum(of[::-1])[::-1] for of in counts]
    both, events = at_risk[0] + at_risk[1], counts[0] + counts[1]
    part = share(at_risk[0], both)
    excess = np.nansum(events * part) - counts[0].sum()
    spread = np.nansum(events * part * (1 - part) * (both - events) / np.maximum(both - 1, 1))
    if not spread > 0 or abs(excess) < DIFFERENT * spread**0.5:
        return "", np.zeros(0)
    later = counts[0] if excess > 0 else counts[1]
    return ("wrong" if excess > 0 else "right"), np.cumsum(later) / later.sum()


def chosen_by_score(
    log: Log, of: npt.NDArray[np.int32], labelled: Bools, hit: Bools, use: Bools
) -> tuple[Chosen, Floats, Floats]:
    """of (N,): the cell of each prediction. use (K,): cells that count → whether labelled rows have other scores than
    all rows (chi-squared in ten bins of each cell); (K,) accuracies weighted by score, NaN: not; (K,) design effects.

    "only": a cell has rows in bins without labels, which no weight can stand for.
    """
    size, none, even = len(use), np.full(len(use), np.nan), np.ones(len(use))
    if log.score is None or not use.any() or labelled.all():
        return "", none, even
    edges = np.unique(np.nanquantile(log.score[:: max(1, len(log) // CHUNK)], np.arange(1, SCORES) / SCORES))
    sums = np.zeros((3, size * SCORES), np.int64)  # rows, labels, right answers
    for start in range(0, len(log), CHUNK):
        part = slice(start, start + CHUNK)
        score = log.score[part]
        key = of[part] * SCORES + np.searchsorted(edges, score, "right")
        for total, chosen in zip(sums, (True, labelled[part], hit[part]), strict=True):
            total += np.bincount(key[np.isfinite(score) & chosen], minlength=size * SCORES)
    rows, n, right = sums.reshape(3, size, SCORES)
    expected = rows * share(n.sum(1), rows.sum(1))[:, None]
    known = use & (n.sum(1) > 0) & (n.sum(1) < rows.sum(1))
    with np.errstate(invalid="ignore", divide="ignore"):
        terms = (n - expected) ** 2 / (expected * (1 - expected / rows))
    squares, free = float(np.nansum(terms[known])), int(((rows > 0).sum(1) - 1)[known].sum())
    # Wilson and Hilferty: the cube root of a mean square is about normal
    if not free or (squares / free) ** (1 / 3) < 1 - 2 / (9 * free) + DIFFERENT * (2 / (9 * free)) ** 0.5:
        return "", none, even
    weight, there = rows / np.maximum(rows.sum(1, keepdims=True), 1), n >= FEW
    if (weight * ~there).sum(1)[use].max() > LACKING:
        return "only", none, even
    weight = np.where(there, weight, 0) / np.maximum(np.where(there, weight, 0).sum(1, keepdims=True), 1e-9)
    each, safe = right / np.maximum(n, 1), (right + 1) / (n + 2)
    accuracy = (weight * each).sum(1)
    of_labels = (weight**2 * safe * (1 - safe) / np.maximum(n, 1)).sum(1)
    plain = np.maximum(accuracy * (1 - accuracy), 1e-4) / np.maximum(n.sum(1), 1)
    return "weighted", np.where(use, accuracy, np.nan), np.where(use, np.maximum(of_labels / plain, 1), 1.0)


def at_constant_mix(log: Log, of: npt.NDArray[np.int32], period: Ints, use: Bools) -> tuple[Floats, float]:
    """of (N,): the cell of each prediction. period, use (K,) → (K,) accuracy that cells would have with the classes and
    groups of all labels, by a fit of cell + class + group to the labels; and the share of labels by which these differ
    between the first period and the last, of classes or of groups, whichever differ more; 0: not beyond chance."""
    rows = np.flatnonzero((log.label != NONE) & use[of])
    if not len(rows):
        return np.full(len(use), np.nan), 0.0
    at, hit = of[rows], (log.label == log.prediction)[rows]
    factors = [log.label[rows]] + ([] if log.group is None else [log.group[rows] - NONE])
    sizes = [int(one.max(initial=0)) + 1 for one in factors]
    key = at.astype(np.int64)
    for one, width in zip(factors, sizes, strict=True):
        key = key * width + one
    _, first, kind = np.unique(key, return_index=True, return_inverse=True)
    n = np.bincount(kind).astype(np.float64)
    rest, at = np.bincount(kind, hit) / n, at[first]
    factors, K = [one[first] for one in factors], len(use)
    effects, cell = [np.zeros(width) for width in sizes], np.zeros(K)
    for _ in range(ROUNDS):
        change = _mean(at, n, rest, K)
        cell, rest = cell + change, rest - change[at]
        for effect, one in zip(effects, factors, strict=True):
            more = _mean(one, n, rest, len(effect))
            effect += more
            rest = rest - more[one]
        if np.abs(change).max(initial=0) < 1e-7:
            break
    level = sum(float(effect @ np.bincount(one, n, len(effect))) for effect, one in zip(effects, factors, strict=True))
    moved = 0.0
    for one, width in zip(factors, sizes, strict=True):
        ends = [period[at] == end for end in (period[at].min(), period[at].max())]
        counts = [np.bincount(one[end], n[end], width) for end in ends]
        a, b = (of / of.sum() for of in counts)
        by_chance = np.sqrt((a + b) / np.pi * sum(1 / of.sum() for of in counts)).sum() / 2
        apart = float(np.abs(a - b).sum()) / 2
        moved = max(moved, apart if apart > CLEARLY * by_chance else 0.0)
    return cell + level / max(n.sum(), 1), moved


def _mean(of: Any, n: Floats, values: Floats, size: int) -> Floats:
    return np.asarray(np.bincount(of, n * values, size) / np.maximum(np.bincount(of, n, size), 1e-9))


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
