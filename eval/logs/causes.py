"""What an older version is behind a newer one in the same period, at one mix of classes and groups: staleness. And
whether a version's accuracy fell because of that, or because data got harder."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from driftline.eval.logs.cells import Cells
from driftline.eval.scoring.bands import Band, Floats, Z, freedom_of, student


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
    from scipy.special import chdtri

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
    apart = apart - own if apart > own * chdtri(m - 1, 0.05) / max(m - 1, 1) else 0.0
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
