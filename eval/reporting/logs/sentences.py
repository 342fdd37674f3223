"""The first screen of a log: what can be concluded, and what cannot.

Only what an older version is behind a newer one in the same period is staleness; else accuracy falls.
"""

import math

from markupsafe import Markup

from driftline.eval.logs.age import Aged
from driftline.eval.logs.notes import one_season
from driftline.eval.logs.periods import day_of
from driftline.eval.reporting.answer import Answer
from driftline.eval.reporting.markup import render
from driftline.eval.reporting.text import ends, points
from driftline.eval.scoring.bands import Band

Text = Markup | str


def answer(aged: Aged) -> Answer:
    """Headline, key sentence, takeaways, and what follows."""
    stale = aged.stale is not None and aged.stale.shown
    made = [_staleness(aged), _fall(aged)] if stale else [_fall(aged), _staleness(aged)]
    if aged.cells.moved and not math.isnan(aged.fixed_slope.low) and not aged.cells.labels:
        made.append(f"At a constant mix of classes and groups it changes by {span(aged.fixed_slope)} points a "
                    f"{aged.periods.unit}; the mix moved by {100 * aged.cells.moved:.0f} %.")  # fmt: skip
    made += [_half_life(aged), _ahead(aged), aged.advice.because]
    sentences, may, may_not = (
        tuple(Markup("{}").format(one) for one in of if one) for of in (made, _may(aged), _may_not(aged))
    )
    return Answer(_headline(aged), sentences, may, may_not)


def span(band: Band) -> str:
    """A change in points, and its interval.

    >>> import numpy as np
    >>> span(Band(np.array(-0.02), np.array(-0.03), np.array(0.01)))
    '−2.0 (−3.0 to +1.0)'
    """
    low, high = (points(float(end), signed=True) for end in (band.low, band.high))
    return f"{points(float(band.value), signed=True)} ({low} to {high})"


def _headline(aged: Aged) -> str:
    if aged.stale is not None and aged.stale.shown:
        return f"Older versions are behind newer ones in the same {aged.periods.unit}: staleness"
    if aged.cells.labels == "only":
        return "Labels were chosen by confidence: accuracy of all rows is not known"
    if math.isnan(aged.slope.low):
        return "Whether accuracy falls is not known"
    if not aged.slope.high < 0:
        return "No fall is seen"
    if aged.cells.moved and not aged.fixed_slope.high < 0:
        return "Accuracy fell, but not at a constant mix of classes and groups"
    return "Accuracy fell; an older model is not shown to be the cause"


def _staleness(aged: Aged) -> Text:
    stale, unit = aged.stale, aged.periods.unit
    if stale is None:
        return ""
    if not stale.shown:
        return f"No staleness is shown: older versions were {span(stale.behind)} points behind in the same {unit}."
    size = render("strong", f"{points(float(stale.behind.value))} points behind")
    text = "Older versions were {} a newer one in the same {} ({}), at the same mix of classes and groups."
    return Markup(text).format(size, unit, ends(float(stale.behind.low), float(stale.behind.high)))


def _fall(aged: Aged) -> Text:
    slope, unit = aged.slope, aged.periods.unit
    if math.isnan(slope.value):
        return "Each version was tested at one age only."
    if aged.cells.labels == "only":
        return "Some scores have no label: what is known of labelled rows is not known of others."
    if math.isnan(slope.low):
        return f"Accuracy changes by {points(float(slope.value), True)} points a {unit}: too few cells for an interval."
    if slope.low <= 0 <= slope.high:
        low, high = (points(float(end), signed=True) for end in (slope.low, slope.high))
        return f"Accuracy of a version changes by {low} to {high} points a {unit}."
    smaller, larger = sorted((abs(float(slope.low)), abs(float(slope.high))))
    size = f"{'fell' if slope.value < 0 else 'rose'} {points(abs(float(slope.value)))} points a {unit}"
    return Markup("In this log accuracy of a version {} ({} to {}).").format(
        render("strong", size), points(smaller), points(larger)
    )


def _half_life(aged: Aged) -> Text:
    half, unit = aged.half_life, aged.periods.unit
    if half is None or half.why == "no later tests":
        return ""
    if half.why:
        return (
            f"No half-life: accuracy above chance {half.why.replace('never above chance', 'is not there when young')}."
        )
    if math.isinf(half.value):
        more = f"; if it goes on so, after {half.extrapolated:.0f}" if math.isfinite(half.extrapolated) else ""
        return f"Half of its accuracy above chance was never gone within {half.tested:.0f} {unit}s{more}."
    high = "more" if math.isinf(half.high) else f"{half.high:.1f}"
    return f"Half of its accuracy above chance was gone after {half.value:.1f} {unit}s ({half.low:.1f} to {high})."


def _ahead(aged: Aged) -> Text:
    if not aged.ahead:
        return "" if aged.cells.labels == "only" else "The cells are too few for a forecast."
    last = max(aged.ahead, key=lambda one: (one.period, one.version))
    where = f"If it goes on so, in the {aged.periods.unit} from {day_of(aged.periods.start(last.period))}"
    value, extent = render("strong", f"{100 * last.value:.0f} %"), f"{100 * last.low:.0f} to {100 * last.high:.0f}"
    beyond = ", extrapolated: no version was tested at this age" if last.extrapolated else ""
    name = aged.versions[last.version].name
    return Markup("{}, {} will be right in {} ({}){}.").format(where, name, value, extent, beyond)


def _may(aged: Aged) -> list[Text]:
    may = []
    if aged.stale is not None and aged.stale.shown:
        may.append(f"that older versions were worse than newer ones on data of the same {aged.periods.unit}")
    if aged.slope.high < 0:
        may.append("that accuracy fell in the time of this log")
    return may or ["the accuracy of each cell of a version and a period, within its interval"]


def _may_not(aged: Aged) -> list[Text]:
    may_not = []
    if aged.stale is None or not aged.stale.shown:
        may_not.append(
            "that a model grows old: harder data look the same, and no older version is shown behind a newer one"
        )
    if one_season(aged.periods):
        may_not.append("that it goes on: under two years, a season cannot be excluded")
    if aged.cells.labels == "only":
        may_not.append("anything about rows without labels")
    return [*may_not, "how a version would do at an age at which none was tested"]
