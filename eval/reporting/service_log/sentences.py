"""What a log says about ageing, in sentences made of numbers."""

from __future__ import annotations

import math

from markupsafe import Markup

from driftline.eval.reporting import text
from driftline.eval.reporting.markup import render
from driftline.eval.service_log.age import Aged
from driftline.eval.service_log.periods import day_of


def of_period(aged: Aged) -> str:
    """month, week, day, year or period."""
    return aged.periods.unit


def share(value: float) -> str:
    """
    >>> share(0.777), share(float("nan"))
    ('77.7', '–')
    """
    return "–" if math.isnan(value) else f"{100 * value:.1f}"


def points(value: float) -> str:
    """
    >>> points(-0.0364)
    '−3.6'
    """
    return text.points(value, signed=True)


def ends(low: float, high: float, signed: bool = False) -> str:
    """
    >>> ends(0.753, 0.805), ends(-0.02, 0.01, signed=True)
    ('75.3 to 80.5', '−2.0 to +1.0')
    """
    if math.isnan(low):
        return "no interval"
    return " to ".join((points if signed else share)(end) for end in (low, high))


def _sizes(low: float, high: float) -> str:
    """Of two ends on one side of 0, the smaller first."""
    smaller, larger = sorted((abs(low), abs(high)))
    return ends(smaller, larger)


def answer(aged: Aged) -> list[Markup | str]:
    """The most important first."""
    return [one for one in (_ageing(aged), _half_life(aged), _ahead(aged), _advice(aged)) if one]


def _ageing(aged: Aged) -> Markup | str:
    fit, unit = aged.fit, of_period(aged)
    if math.isnan(fit.slope):
        return "Each version was tested at one age only: how fast it ages cannot be said."
    if math.isnan(fit.low):
        return f"Accuracy changes by {points(fit.slope)} points a {unit}; the cells are too few for an interval."
    if fit.low <= 0 <= fit.high:
        span = ends(fit.low, fit.high, signed=True)
        return Markup("{} Accuracy changes by {} points a {}.").format(
            render("strong", "No ageing is seen."), span, unit
        )
    verb = "loses" if fit.slope < 0 else "gains"
    size = f"{verb} {100 * abs(fit.slope):.1f} points a {unit}"
    of = "The model" if len(aged.versions) == 1 else "A version"
    span = _sizes(fit.low, fit.high)
    cause = "" if aged.split is not None else ": an older model and harder data are not told apart"
    return Markup("{} {} ({}) since its training{}.").format(of, render("strong", size), span, cause)


def _half_life(aged: Aged) -> str:
    decay, unit = aged.decay, of_period(aged)
    if math.isnan(decay.half_life) or len(decay.lags) < 2:
        return ""
    tested = int(decay.lags[-1] - decay.lags[0])
    if math.isinf(decay.half_life):
        return f"Half of what it knows above chance is gone after more than {tested} {unit}s."
    high = "more" if math.isinf(decay.half_life_high) else f"{decay.half_life_high:.1f}"
    interval = f"{decay.half_life_low:.1f} to {high}"
    return f"Half of what it knows above chance is gone after {decay.half_life:.1f} {unit}s ({interval})."


def _ahead(aged: Aged) -> Markup | str:
    if not aged.ahead:
        return "The cells are too few for a forecast."
    last = max(aged.ahead, key=lambda one: (one.period, one.version))
    where = f"In the {of_period(aged)} from {day_of(aged.start_of(last.period))}"
    value = render("strong", f"{100 * last.value:.0f} %")
    span = f"{100 * last.low:.0f} to {100 * last.high:.0f}"
    beyond = ", extrapolated: no version was tested at this age" if last.extrapolated else ""
    name = aged.versions[last.version].name
    return Markup("{}, {} will be right in {} ({}){}.").format(where, name, value, span, beyond)


def _advice(aged: Aged) -> str:
    return aged.advice.because
