"""What a version will be worth in the next periods, and whether a newly trained one would pay."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from driftline.eval.logs.cells import Cells, Ints
from driftline.eval.logs.trend import FREE, Line, Stale, half_of, of_labels
from driftline.eval.scoring.bands import Band, Floats, Z

HORIZON = 3  # periods after the last one of the log
STARTS = 3  # versions from which on their starts have a trend


@dataclass(frozen=True)
class Ahead:
    """One version in one period to come, or whose labels are still to come."""

    version: int
    period: int
    lag: int
    value: float
    low: float
    high: float
    extrapolated: bool
    """whether no version was tested at this age"""


@dataclass(frozen=True)
class Advice:
    """Whether to train a new version now."""

    retrain: bool | None
    """None: not known"""
    payback: float | None
    """periods until what it saves is what it costs"""
    gain: Band | None
    """() accuracy that a new version has more in the next period"""
    because: str


def forecast(cells: Cells, fit: Line, periods: int) -> list[Ahead]:
    """Of the versions in the last complete period, up to `HORIZON` periods after the log, by the line; [] with too few
    cells, or labels of the labelled rows only. The interval is of what a cell of average size will show."""
    use = cells.usable
    if cells.labels == "only" or fit.free < FREE or not np.isfinite(fit.slope.value):
        return []
    last, longest = int(cells.period[use].max()), int(cells.lag[use].max())
    of = use & (cells.period == last)
    lags = dict(zip(cells.version[of].tolist(), cells.lag[of].tolist(), strict=True))
    coming = range(last + 1, max(periods - 1, last) + HORIZON + 1)
    asked = [(version, period, lag + period - last) for period in coming for version, lag in lags.items()]
    values, weights = zip(*(fit.at(version, age) for version, _, age in asked), strict=True)
    value = np.array(values)
    of_labels = np.maximum(value * (1 - value), 0) * float((1 / cells.labelled[use]).mean())
    low, high = _ends(cells, fit, np.stack(weights), np.array([period for _, period, _ in asked]), of_labels)
    ends = np.clip([value, np.minimum(low, value), np.maximum(high, value)], 0, 1).T.tolist()
    return [
        Ahead(version, period, age, middle, lowest, highest, age > longest)
        for (version, period, age), (middle, lowest, highest) in zip(asked, ends, strict=True)
    ]


def _ends(cells: Cells, fit: Line, weights: Floats, periods: Ints, of_labels: Floats) -> tuple[Floats, Floats]:
    """Ends (J,) of the interval of what cells of periods (J,) will show, with such variances by their labels. weights
    (J, K) @ cells: by the line. What was special to the last periods goes on as far as periods are alike: a fall that
    slows down leaves the line."""
    use, scatter, means, variances = cells.usable, fit.scatter, [], []
    fitted = [fit.at(*at)[1] for at in zip(cells.version[use].tolist(), cells.lag[use].tolist(), strict=True)]
    rest = np.eye(len(fitted)) - np.stack(fitted)
    for g, variance in enumerate(scatter.variance.tolist()):
        covariance, shared = scatter.covariance(g), scatter.shared(g, periods)
        best = weights + np.linalg.solve(covariance, shared).T @ rest
        means.append(best @ cells.accuracy[use])
        apart = (best @ covariance * best).sum(1) - 2 * (best * shared.T).sum(1)
        variances.append(apart + variance + of_labels)
    low, high = (scatter.end(np.stack(means), np.stack(variances), q) for q in (0.025, 0.975))
    return low, high


def advice(
    cells: Cells, fit: Line, trained: Sequence[int], ahead: list[Ahead], stale: Stale | None,
    costs: tuple[float, float] | None, unit: str,
) -> Advice:  # fmt: skip
    """costs: of one wrong answer, and of training a version, in one currency. unit: of periods.

    Nothing is advised unless an older version is shown to be behind a newer one. Payback: what training costs over what
    it saves in one period: errors of so many predictions [alpha = c / (e N), Regol et al. 2025, eq. 3]."""
    if not ahead:
        return Advice(None, None, None, "Nothing can be forecast, and so nothing is advised.")
    use = np.flatnonzero(cells.usable)
    young = use[cells.lag[use] == cells.lag[use].min()]  # of the youngest age that any version was tested at
    if stale is None or not stale.shown:
        because = (
            f"Whether training again helps is not known: no older version is shown behind a newer one in one {unit}."
        )
        order = young[np.argsort([trained[int(v)] for v in cells.version[young]], kind="stable")][-6:]
        starts = ", ".join(f"{100 * one:.1f}" for one in cells.accuracy[order])
        return Advice(None, None, None, because + (f" Versions started at {starts} %." if len(order) > 1 else ""))
    if len(young) < 2:
        because = "Only one version was tested when as young: what a new one would reach is not known."
        return Advice(None, None, None, because)
    newest = max((one for one in ahead if one.period == ahead[0].period), key=lambda one: (-one.lag, one.version))
    band = _gain(cells, fit, trained, young, newest)
    gain = float(band.value)
    gained, low, high = (f"{100 * float(end):+.1f}".replace("-", "−") for end in (band.value, band.low, band.high))
    points = f"A new version would gain {gained} points ({low} to {high})"
    if costs is None:
        return Advice(None, None, band, f"{points}; no costs were given.")
    of = cells.usable & (cells.version == newest.version)
    payback = costs[1] / (costs[0] * float(np.mean(cells.rows[of]))) / gain if gain > 0 and costs[0] > 0 else None
    if payback is None or band.low <= 0:
        return Advice(None, payback, band, f"{points}: whether it is better is not known.")
    pays = payback <= HORIZON
    verdict = f"it pays back in {payback:.1f} {unit}s, {'within' if pays else 'beyond'} the next {HORIZON}"
    return Advice(pays, payback, band, f"{points}: {verdict}.")


def _gain(cells: Cells, fit: Line, trained: Sequence[int], young: Ints, newest: Ahead) -> Band:
    """() what a version that starts in the period of a forecast has more. It starts at the mean of `young` cells, or on
    a line over the dates of versions where that has more than labels explain. Levels of versions by all their cells say
    how much starts differ; it is at least what labels say."""
    y, versions = cells.accuracy[young], cells.version[young].tolist()
    own = [fit.at(v, float(cells.lag[young[0]])) for v in versions]
    level = np.array([value for value, _ in own])
    labels = float(np.mean([weights**2 @ fit.scatter.of_labels for _, weights in own]))
    x = np.array([trained[v] for v in versions], np.float64)
    m, centred = len(y), x - x.mean()
    squares = float(centred @ centred)
    trend, free, far = np.zeros(m), m - 1, 1 + 1 / m
    if m >= STARTS and squares and abs(centred @ level) > Z * (labels * squares) ** 0.5:
        trend, free, far = centred / squares, m - 2, far + (newest.period - x.mean()) ** 2 / squares
    rest = level - level.mean() - centred * float(trend @ level)
    start = float(y.mean() + (newest.period - x.mean()) * (trend @ y))
    weights = fit.at(newest.version, newest.lag)[1]
    of_newest = (float(fit.scatter.halves(weights[None])[0]) / Z) ** 2
    spread = max(float(rest @ rest) / free, labels) * far
    half = half_of([(of_newest, math.inf), (float(of_labels(cells)[young].mean()) / m, math.inf), (spread, free)])
    return Band.around(start - newest.value, half)
