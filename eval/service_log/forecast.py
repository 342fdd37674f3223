"""What a version will be worth in the next periods, and whether a fresh one would pay."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from driftline.eval.scoring.bands import Z, student
from driftline.eval.service_log.cells import Cells
from driftline.eval.service_log.trend import FREE, Fading, Line, fading

HORIZON = 3  # periods after the last one of the log
CLEAR = 6.0  # by how much one shape must be the better description (BIC) to stand alone


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
    """Whether to train a fresh version now."""

    retrain: bool | None
    """None: not known"""
    payback: float | None
    """periods until what it saves is what it costs"""
    gain: tuple[float, float, float] | None
    """accuracy that a fresh version has more in the next period, with a 95 % interval"""
    because: str


def forecast(cells: Cells, fit: Line, periods: int) -> list[Ahead]:
    """Of the versions in the last complete period, up to `HORIZON` periods after the log; [] with too few cells.
    Accuracy falls as it did: in a straight line, or exponentially towards chance if that leaves less. Beyond the
    longest tested age the interval holds both lines, unless one is clearly the better description. It is of what a cell
    of average size will show, and never narrower than labels alone make it: of few cells the scatter is often small by
    chance, and a lower accuracy scatters more than theirs."""
    use = cells.usable
    if fit.free < FREE or not use.any() or not math.isfinite(fit.slope):
        return []
    last = int(cells.period[use].max())
    of = use & (cells.period == last)
    lags = dict(zip(cells.version[of].tolist(), cells.lag[of].tolist(), strict=True))
    longest, ahead = int(cells.lag[use].max()), []
    wide, labels = float(student(fit.free + 1)), 1 / float((1 / cells.labelled[use]).mean())
    shapes: list[Line | Fading] = [fit]
    within = shapes
    if (fade := fading(cells, fit)) is not None:
        apart = int(use.sum()) * math.log(max(fit.loss, 1e-12) / max(fade.line.loss, 1e-12))
        shapes = [fade, fit] if apart > 0 else [fit, fade]
        shapes = shapes if abs(apart) < CLEAR else shapes[:1]
        within = shapes if apart > 0 else shapes[:1]
    for period in range(last + 1, max(periods - 1, last) + HORIZON + 1):
        for version, lag in lags.items():
            age = lag + period - last
            beyond = age > longest
            drawn = shapes if beyond else within
            spans = []
            for value, of_line, scatter in (one.at(version, age) for one in drawn):
                of_labels = max(value * (1 - value), 0.0) / labels
                spans.append((value, max(wide * math.sqrt(of_line + scatter), Z * math.sqrt(of_line + of_labels))))
            low, high = min(value - half for value, half in spans), max(value + half for value, half in spans)
            value, low, high = (min(max(end, 0.0), 1.0) for end in (spans[0][0], low, high))
            ahead.append(Ahead(version, period, age, value, low, high, beyond))
    return ahead


def advice(
    cells: Cells, fit: Line, ahead: list[Ahead], cost_error: float | None, cost_retrain: float | None, unit: str
) -> Advice:
    """cost_error, cost_retrain: of one wrong answer, and of training a version, in one currency. unit: of periods.

    A fresh version is worth what versions had at the youngest age, on average. Payback: what training costs over what
    it saves in one period: errors of so many predictions [alpha = c / (e N), Regol et al. 2025, eq. 3]."""
    use = cells.usable
    if not ahead:
        return Advice(None, None, None, "Too few complete cells: nothing can be forecast.")
    young = _young(cells)
    if len(young) < 2:
        because = "Only one version was tested when as young: what a fresh one would reach is not known."
        return Advice(None, None, None, because)
    newest = max((one for one in ahead if one.period == ahead[0].period), key=lambda one: (-one.lag, one.version))
    fresh = float(np.mean(cells.accuracy[young]))
    of_fresh = float(fit.scatter[np.searchsorted(np.flatnonzero(use), young)].sum()) / len(young) ** 2
    gain = fresh - newest.value
    half = math.hypot((newest.high - newest.low) / 2, float(student(fit.free + 1)) * math.sqrt(of_fresh))
    interval = (gain, gain - half, gain + half)
    gained, low, high = (f"{100 * end:+.1f}".replace("-", "−") for end in interval)
    points = f"A fresh version would gain {gained} points ({low} to {high})"
    if cost_error is None or cost_retrain is None:
        return Advice(None, None, interval, f"{points}; no costs were given.")
    rows = float(np.mean(cells.rows[use & (cells.version == newest.version)]))
    payback = cost_retrain / (cost_error * rows) / gain if gain > 0 and cost_error > 0 else None
    if interval[1] <= 0 <= interval[2]:
        return Advice(None, payback, interval, f"{points}: whether it is better is not known.")
    if payback is None:
        return Advice(False, None, interval, f"{points}: it saves nothing.")
    pays = payback <= HORIZON
    verdict = f"it pays back in {payback:.1f} {unit}s, {'within' if pays else 'beyond'} the next {HORIZON}"
    return Advice(pays, payback, interval, f"{points}: {verdict}.")


def _young(cells: Cells) -> np.ndarray:
    """Places of the usable cells of the youngest age that any version was tested at."""
    use = np.flatnonzero(cells.usable)
    return use[cells.lag[use] == cells.lag[use].min()] if len(use) else use
