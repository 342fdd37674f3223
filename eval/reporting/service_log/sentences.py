"""What a log says, in sentences made of numbers. Only what an older version is behind a newer one in the same period is
staleness; else accuracy falls."""

from __future__ import annotations

import math

from markupsafe import Markup

from driftline.eval.reporting.markup import render
from driftline.eval.reporting.text import ends, points
from driftline.eval.scoring.bands import Band
from driftline.eval.service_log.age import Aged
from driftline.eval.service_log.periods import day_of

MOVED = 0.05  # share of the labels by which a mix of classes and groups differs noticeably


def answer(aged: Aged) -> list[Markup | str]:
    """The most important first."""
    made = (_staleness(aged), _fall(aged), _mix(aged), _half_life(aged), _ahead(aged), aged.advice.because)
    return [one for one in made if one]


def span(band: Band) -> str:
    """A change in points, and its interval.

    >>> import numpy as np
    >>> span(Band(np.array(-0.02), np.array(-0.03), np.array(0.01)))
    '−2.0 (−3.0 to +1.0)'
    """
    low, high = (points(float(end), signed=True) for end in (band.low, band.high))
    return f"{points(float(band.value), signed=True)} ({low} to {high})"


def _staleness(aged: Aged) -> Markup | str:
    stale, unit = aged.stale, aged.periods.unit
    if stale is None:
        return ""
    if not stale.shown:
        return f"No staleness is shown: older versions were {span(stale.behind)} points behind in the same {unit}."
    size = render("strong", f"{points(float(stale.behind.value))} points behind")
    text = "Staleness: older versions were {} a newer one in the same {} ({}), at the same mix of classes and groups."
    return Markup(text).format(size, unit, ends(float(stale.behind.low), float(stale.behind.high)))


def _fall(aged: Aged) -> Markup | str:
    slope, unit = aged.slope, aged.periods.unit
    if math.isnan(slope.value):
        return "Each version was tested at one age only: whether accuracy falls with age is not known."
    if aged.cells.labels == "only":
        return "Labels were chosen by confidence: whether accuracy of all rows falls is not known."
    if math.isnan(slope.low):
        return f"Accuracy changes by {points(float(slope.value), True)} points a {unit}: too few cells for an interval."
    if slope.low <= 0 <= slope.high:
        low, high = (points(float(end), signed=True) for end in (slope.low, slope.high))
        return Markup("{} Accuracy changes by {} to {} points a {}.").format(
            render("strong", "No fall is seen."), low, high, unit
        )
    falls = slope.value < 0
    smaller, larger = sorted((abs(float(slope.low)), abs(float(slope.high))))
    size = render("strong", f"{'fell' if falls else 'rose'} {points(abs(float(slope.value)))} points a {unit}")
    return Markup("In this log accuracy of a version {} ({} to {}){}.").format(
        size, points(smaller), points(larger), "" if aged.split else ", by its age or by other data"
    )


def _mix(aged: Aged) -> str:
    if aged.cells.moved < MOVED or math.isnan(aged.fixed_slope.low) or aged.cells.labels:
        return ""
    return (f"At a constant mix of classes and groups it changes by {span(aged.fixed_slope)} points a "
            f"{aged.periods.unit}; the mix moved by {100 * aged.cells.moved:.0f} %.")  # fmt: skip


def _half_life(aged: Aged) -> str:
    half, unit = aged.half_life, aged.periods.unit
    if math.isnan(half.value):
        return ""
    if math.isinf(half.value):
        tested = int(aged.curve.lags[-1] - aged.curve.lags[0])
        return f"Half of its accuracy above chance was never gone within {tested} {unit}s."
    high = "more" if math.isinf(half.high) else f"{half.high:.1f}"
    return f"Half of its accuracy above chance was gone after {half.value:.1f} {unit}s ({half.low:.1f} to {high})."


def _ahead(aged: Aged) -> Markup | str:
    if not aged.ahead:
        return "" if aged.cells.labels == "only" else "The cells are too few for a forecast."
    last = max(aged.ahead, key=lambda one: (one.period, one.version))
    where = f"If it goes on so, in the {aged.periods.unit} from {day_of(aged.start_of(last.period))}"
    value, extent = render("strong", f"{100 * last.value:.0f} %"), f"{100 * last.low:.0f} to {100 * last.high:.0f}"
    beyond = ", extrapolated: no version was tested at this age" if last.extrapolated else ""
    name = aged.versions[last.version].name
    return Markup("{}, {} will be right in {} ({}){}.").format(where, name, value, extent, beyond)
