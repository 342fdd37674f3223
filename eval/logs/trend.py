"""How accuracy of versions changes with their age, from cells: a line, a curve by age, and what they scatter beyond it;
and whether it fell because an older version is behind a newer one, or because data got harder.

A cell is one version in one period. Levels of versions are their own; the change with age is one for all. Periods
differ by more than labels say, and one is like the next: what is special to a period is an autoregressive process whose
variance and memory are not known. Intervals are over all that could be, weighted by how well each explains the rests.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from driftline.curate.core.late import special
from driftline.eval.logs.cells import Cells
from driftline.eval.scoring.bands import Array, Band, Floats, Z, freedom_of, share, student
from driftline.eval.scoring.decay import HalfLife, half_life_of
from driftline.eval.scoring.sums import Drawn

Ints = npt.NDArray[np.int64]
FREE = 3  # degrees of freedom below which nothing is forecast
SPREADS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # of periods, over that of the rests
MEMORIES = {0.0: 0.1, 0.6: 0.5, 0.95: 1.0}
"""likeness of a period and the next → how much it is expected. Few periods cannot show a long memory, which alone looks
like a fall: equal weights call 7 % of such logs falling where 2.5 % is stated"""
DRAWS = 400  # of a half-life
MANY = 1e6  # clusters: draws are as wide as they should be


@dataclass(frozen=True)
class Scatter:
    """Covariances that K cells may have: variance of labels, and a process over periods. G pairs of its spread and its
    memory."""

    period: Ints
    """(K,)"""
    of_labels: Floats
    """(K,) variances"""
    variance: Floats
    """(G,) of periods"""
    memory: Floats
    """(G,)"""
    weight: Floats
    """(G,) sum 1"""

    def covariance(self, g: int) -> Floats:
        """(K, K) by the g-th pair."""
        return np.diag(self.of_labels) + self.shared(g, self.period)

    def shared(self, g: int, period: Array) -> Floats:
        """(K, J) covariance of the cells with what is special to periods (J,)."""
        gaps = np.abs(self.period[:, None] - period[None, :])
        return np.asarray(self.variance[g] * self.memory[g] ** gaps)

    def halves(self, weights: Floats) -> Floats:
        """(J,) half the 95 % interval of weights (J, K) @ cells."""
        spans = np.stack([(weights @ self.covariance(g) * weights).sum(1) for g in range(len(self.weight))])
        return self.end(np.zeros_like(spans), spans, 0.975)

    def end(self, means: Floats, variances: Floats, below: float) -> Floats:
        """(J,) quantile of a mixture of normal distributions, (G, J) each, with the weights of the pairs."""
        deviation = np.maximum(np.sqrt(np.maximum(variances, 0)), 1e-12)
        low, high = (means + side * 40 * deviation for side in (-1, 1))
        low, high = low.min(0), high.max(0)
        for _ in range(60):
            middle = (low + high) / 2
            inside = self.weight @ special.ndtr((middle - means) / deviation) >= below
            low, high = np.where(inside, low, middle), np.where(inside, middle, high)
        return high


@dataclass(frozen=True)
class Line:
    """Least squares of K cells with an own level for each version, weighted by labels."""

    slope: Band
    """() change of accuracy per period of age; NaN: no version has two ages"""
    levels: dict[int, tuple[float, Floats]]
    """version → accuracy at age 0 by the line, and its (K,) weights of cells"""
    weights: Floats
    """(K,) of the slope"""
    free: int
    """degrees of freedom"""
    scatter: Scatter

    def at(self, version: int, lag: float) -> tuple[float, Floats]:
        """Accuracy of a version at an age, and its (K,) weights of cells."""
        level, weights = self.levels[version]
        return level + lag * float(self.slope.value), weights + lag * self.weights


def line(version: Ints, period: Ints, lag: Ints, accuracy: Floats, effective: Floats) -> Line:
    """Of K cells with numbers: version, period, lag, accuracy and number of independent labels."""
    average = float(np.average(accuracy, weights=effective))  # one for all: a cell without mistakes is not certain
    of_labels = max(average * (1 - average), 1e-4) / effective
    names, place = np.unique(version, return_inverse=True)
    n = 1 / of_labels
    own = (place[:, None] == np.arange(len(names))) * n[:, None]
    own = own / own.sum(0)  # (K, V) weights of each version's mean
    centred = lag - own.T[place] @ lag
    squares = float(n @ centred**2)
    ages = squares > 1e-9 * float(n.sum())
    weights = n * centred / squares if ages else np.full(len(n), np.nan)
    weights = weights - own @ np.bincount(place, weights) if ages else weights
    free = len(accuracy) - len(names) - ages
    slope = float(weights @ accuracy)
    rest = accuracy - (own.T @ accuracy)[place] - (slope * centred if ages else 0)
    scatter = _scatter(place, period, lag if ages else None, accuracy, of_labels, rest, free)
    half = float(scatter.halves(weights[None])[0]) if ages and free > 0 else math.nan
    levels = {}
    for v, name in enumerate(names.tolist()):
        of = own[:, v] - (float(own[:, v] @ lag) * weights if ages else 0)
        levels[name] = (float(of @ accuracy), of)
    return Line(Band.around(slope if ages else math.nan, half), levels, weights, free, scatter)


def _scatter(
    place: Ints, period: Ints, lag: Ints | None, accuracy: Floats, of_labels: Floats, rest: Floats, free: int
) -> Scatter:
    """Weights by the restricted likelihood of the rests [Patterson & Thompson 1971], in units of their spread."""
    from scipy.linalg import solve_triangular

    pairs = [(0.0, 0.0, 1.0)]
    if free > 0:
        unit = max(float((rest**2).sum()) / free, float(of_labels.mean()))
        pairs += [(spread**2 * unit, memory, w) for spread in SPREADS for memory, w in MEMORIES.items()]
    variance, memory, expected = (np.array(of) for of in zip(*pairs, strict=True))
    expected[1:] /= sum(MEMORIES.values())
    known = Scatter(period, of_labels, variance, memory, expected / expected.sum())
    if free < 1:
        return known
    several = np.bincount(place)[place] > 1  # what is alone says nothing: its level takes it up
    place = np.unique(place[several], return_inverse=True)[1]
    columns = [np.eye(int(place.max()) + 1)[place]] + ([] if lag is None else [lag[several, None]])
    columns = [*columns, accuracy[several, None]]
    design = np.concatenate(columns, 1).astype(np.float64)
    logs = []
    for g in range(len(variance)):
        root = np.linalg.cholesky(known.covariance(g)[np.ix_(several, several)])
        scaled = solve_triangular(root, design, lower=True)
        triangle = np.abs(np.diag(np.linalg.qr(scaled, "r")))
        logs.append(-np.log(np.diag(root)).sum() - np.log(triangle[:-1]).sum() - triangle[-1] ** 2 / 2)
    weight = known.weight * np.exp(np.array(logs) - max(logs))
    return Scatter(period, of_labels, variance, memory, weight / weight.sum())


@dataclass(frozen=True)
class Curve:
    """Of the versions that were tested at the youngest age. A lags from that one on."""

    lags: Ints
    """(A,)"""
    accuracy: Band
    """(A,) mean of versions when young, and the mean change of those that were tested at both ages"""
    retained: Floats
    """(A,) share of the accuracy above chance that is left"""
    versions: Ints
    """(A,) how many"""


def by_age(cells: Cells, fit: Line) -> Curve:
    """Accuracy at each age that was tested."""
    use = np.flatnonzero(cells.usable)
    version, lag, accuracy = (of[use] for of in (cells.version, cells.lag, cells.accuracy))
    lags = np.unique(lag)
    first = {int(v): k for k, v in enumerate(version) if lag[k] == lags[0]}
    table, count, left = np.zeros((len(lags), len(use))), [], []
    for weights, age in zip(table, lags.tolist(), strict=True):
        weights[list(first.values())] = 1 / len(first)
        both = [k for k in np.flatnonzero(lag == age).tolist() if int(version[k]) in first]
        young = [first[int(version[k])] for k in both]
        np.add.at(weights, both, 1 / max(len(both), 1))
        np.add.at(weights, young, -1 / max(len(both), 1))
        count.append(len(both))
        left.append([float((accuracy[of] - cells.chance).sum()) for of in (both, young)])
    value = np.where(np.array(count) > 0, table @ accuracy, math.nan)
    band = Band.around(value, fit.scatter.halves(table)).of_share()
    return Curve(lags.astype(np.int64), band, share(*np.array(left).T), np.array(count, np.int64))


def half_life(cells: Cells, curve: Curve, fit: Line, rng: np.random.Generator) -> HalfLife:
    """In periods. Replicates draw cells with the scatter of labels and periods."""
    use = cells.usable
    version, lag, accuracy = (of[use] for of in (cells.version, cells.lag, cells.accuracy))
    of_pairs = rng.multinomial(DRAWS, fit.scatter.weight)
    drawn = [
        rng.multivariate_normal(accuracy, fit.scatter.covariance(g), n, method="cholesky")
        for g, n in enumerate(of_pairs.tolist())
        if n
    ]
    above = np.concatenate([accuracy[None], *drawn]) - cells.chance
    young = {int(v): k for k, v in enumerate(version) if lag[k] == curve.lags[0]}
    known = np.flatnonzero(curve.versions)
    left = np.full((len(above), len(known)), math.nan)
    for a, age in enumerate(curve.lags[known].tolist()):
        both = [k for k in np.flatnonzero(lag == age).tolist() if int(version[k]) in young]
        first = above[:, [young[int(version[k])] for k in both]].sum(1)
        left[:, a] = share(above[:, both].sum(1), first)
    replicates = Drawn(left[0], left[1:], left[:1], np.zeros((0, 1, len(known))), MANY)
    return half_life_of(replicates, curve.lags[known].astype(np.float64), len(known) > 1)


@dataclass(frozen=True)
class Split:
    """Why a version's accuracy fell since it was young, on average over pairs with a newly trained version in one
    period."""

    harder: Band
    """() what newly trained versions lose between the two periods: the data got harder"""
    older: Band
    """() what the old version is behind the newly trained one in the later period"""
    together: Band
    """() both"""
    pairs: int


@dataclass(frozen=True)
class Stale:
    """What older versions are behind the newest one in the same periods."""

    behind: Band
    """() accuracy, 0 … 1"""
    newer: int
    """versions that had an older one beside them"""
    pairs: int
    """of an older version and the newest one in one period"""

    @property
    def shown(self) -> bool:
        """Whether the interval is above 0."""
        return bool(self.behind.low > 0)


def half_of(parts: Sequence[tuple[float, float]]) -> float:
    """Half a 95 % interval of a sum of estimates, each with its variance and degrees of freedom.

    >>> round(half_of([(1.0, math.inf)]), 2), round(half_of([(1.0, 1), (0.0, math.inf)]), 1)
    (1.96, 12.7)
    """
    variance = sum(one for one, _ in parts)
    return float(student(freedom_of(variance, parts) + 1)) * math.sqrt(variance)


def of_labels(cells: Cells) -> Floats:
    """(K,) variance of each cell by its labels."""
    p, n = cells.fixed, cells.effective
    return np.asarray(np.maximum(p * (1 - p), 1 / (n + 4)) / n)


def staleness(cells: Cells, trained: Sequence[int]) -> Stale | None:
    """trained (V,): number of the period in which each version's training data ends. Mean over the versions that had an
    older one beside them; these differ by more than labels say where that is shown. None: no two such versions were
    in service in one period, or labels speak of the labelled rows only."""
    use, variance = np.flatnonzero(cells.usable), of_labels(cells)
    gaps: dict[int, list[tuple[float, float]]] = {}
    for period in np.unique(cells.period[use]).tolist():
        here = use[cells.period[use] == period]
        newest = here[np.argmax([(trained[int(cells.version[k])], int(cells.version[k])) for k in here], 0)[0]]
        new = int(cells.version[newest])
        for k in here.tolist():
            if trained[int(cells.version[k])] < trained[new]:
                gap = float(cells.fixed[newest] - cells.fixed[k])
                gaps.setdefault(new, []).append((gap, float(variance[newest] + variance[k])))
    if not gaps or cells.labels == "only":
        return None
    means = np.array([np.mean([gap for gap, _ in of]) for of in gaps.values()])
    own = float(np.mean([sum(one for _, one in of) / len(of) ** 2 for of in gaps.values()]))
    m, value = len(means), float(means.mean())
    apart = float(means.var(ddof=1)) if m > 1 else 0.0
    apart = apart - own if apart > own * special.chdtri(m - 1, 0.05) / max(m - 1, 1) else 0.0
    half = half_of([(own / m, math.inf), (apart / m, max(m - 1, 1))])
    return Stale(Band.around(value, half), m, sum(map(len, gaps.values())))


def split(cells: Cells) -> tuple[Split | None, str]:
    """Of the oldest age at which two versions, an old and a newly trained one, were in service in one period; or why
    none. Intervals are by labels of these cells, whose periods are the question and vary nothing."""
    use = cells.usable
    at = {(int(v), int(p)): k for k, (v, p) in enumerate(zip(cells.version, cells.period, strict=True)) if use[k]}
    young = {v: min((int(cells.lag[k]), k) for (one, _), k in at.items() if one == v) for v in {v for v, _ in at}}
    pairs = []
    for (version, period), old in at.items():
        lag, first = young[version]
        for other, (fresh_lag, fresh) in young.items():
            if other != version and int(cells.period[fresh]) == period and fresh_lag <= lag < int(cells.lag[old]):
                pairs.append((int(cells.lag[old]) - lag, first, fresh, old))
    if not pairs:
        why = "Versions follow each other" if len(young) > 1 else "There is one version"
        do = "let the old one answer a part of the next month, or score stored inputs with it."
        if len({period for _, period in at}) < len(at):
            why = "Versions overlap, but the newer one was older at its first test than the other at its own"
            do = "put the next one into service as soon as it is trained, or score stored inputs with it."
        problem = "No period has an old and a newly trained version: an older model and harder data look the same."
        return None, f"{problem} {why}; {do}"
    oldest = max(age for age, *_ in pairs)
    of = [(first, fresh, old) for age, first, fresh, old in pairs if age == oldest]
    weight = np.zeros((3, len(cells)))  # of each cell in harder, older, and both
    for first, fresh, old in of:
        weight[:, first] += (1, 0, 1)
        weight[:, fresh] += (-1, 1, 0)
        weight[:, old] += (0, -1, -1)
    weight = weight[:, use] / len(of)
    bands = Band.around(weight @ cells.fixed[use], Z * np.sqrt(weight**2 @ of_labels(cells)[use]))
    return Split(bands[0], bands[1], bands[2], len(of)), ""
