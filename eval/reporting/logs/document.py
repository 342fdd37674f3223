"""What a log says: `age --json` as plain data, limits of `--alarm`, and the sentences of the first screen.

Only what an older version is behind a newer one in the same period is staleness; else accuracy falls.
"""

import math
import re
from typing import Any

import numpy as np
from markupsafe import Markup

from driftline.curate.core.errors import BadConfig
from driftline.eval.logs.age import Aged, one_season
from driftline.eval.logs.cells import day_of
from driftline.eval.plain import plain
from driftline.eval.reporting.answer import Answer
from driftline.eval.reporting.markup import render
from driftline.eval.reporting.text import ends, points
from driftline.eval.scoring.bands import Band

ALARM = re.compile(r"\s*(accuracy|forecast|slope|half_life_days)\s*([<>])\s*(-?\d+(?:\.\d+)?)\s*")
SHARES = ("accuracy", "forecast")
FALSE = 0.025  # that an interval lies beyond the truth, on one side
Text = Markup | str


def document(aged: Aged, alarm: str | None = None) -> dict[str, Any]:
    """JSON of everything; numbers that are not known are None. Raises BadConfig for an alarm that is none."""
    cells, curve, causes = aged.cells, aged.curve, aged.split
    half = [None] * 4 if aged.half_life is None else [
        getattr(aged.half_life, name) * aged.days_a_period for name in ("value", "low", "high", "extrapolated")
    ]  # fmt: skip
    retained = zip((curve.lags - curve.lags[0]).tolist(), curve.retained.tolist(), strict=True)
    parts = {} if causes is None else {"harder": causes.harder, "older": causes.older}
    out = {
        "answer": answer(aged).texts(),
        "cells": [_cell(aged, k) for k in np.flatnonzero(cells.usable).tolist()],
        "gaps": [_gap(aged, k) for k in np.flatnonzero(~cells.usable).tolist()],
        "period": aged.periods.unit,
        "slope_per_period": aged.slope,
        "slope_at_constant_mix": aged.fixed_slope,
        "mix_moved": cells.moved,
        "staleness": aged.stale and vars(aged.stale.behind) | {"versions": aged.stale.newer, "pairs": aged.stale.pairs},
        "curve": {"age_periods": curve.lags, "versions": curve.versions, **vars(curve.accuracy)},
        "retained": {str(lag): left for lag, left in retained if lag},
        "half_life_days": half[0],
        "half_life_interval_days": half[1:3],
        "half_life_extrapolated_days": half[3],
        "split": {name: band.value for name, band in parts.items()} or None,
        "split_intervals": {name: (band.low, band.high) for name, band in parts.items()} or None,
        "split_because": aged.split_because or None,
        "forecast": [
            _span(aged, one.version, one.period) | {"age_days": aged.age_days(one.version, one.period)}
            | {name: getattr(one, name) for name in ("value", "low", "high", "extrapolated")} for one in aged.ahead
        ],
        "advice": {
            "retrain": aged.advice.retrain, "payback_periods": aged.advice.payback, "gain": aged.advice.gain,
            "because": aged.advice.because,
        },
        "labels": cells.labels or "all",
        "counts": aged.counts,
        "notes": aged.notes,
    }  # fmt: skip
    if alarm is not None:
        out["alarm"] = alarm_of(aged, alarm)
    return dict(plain(out))


def _cell(aged: Aged, k: int) -> dict[str, Any]:
    cells = aged.cells
    version, period = int(cells.version[k]), int(cells.period[k])
    return _span(aged, version, period) | {
        "age_days": aged.age_days(version, period), "n": int(cells.labelled[k]), "predictions": int(cells.rows[k]),
        "accuracy": float(cells.accuracy[k]), "low": float(cells.low[k]), "high": float(cells.high[k]),
    }  # fmt: skip


def _gap(aged: Aged, k: int) -> dict[str, Any]:
    cells = aged.cells
    why = "labels are still to come" if cells.pending[k] else "too few labels"
    why = "older than the training data" if cells.lag[k] < 0 else why
    about = {"predictions": int(cells.rows[k]), "n": int(cells.labelled[k]), "because": why}
    return _span(aged, int(cells.version[k]), int(cells.period[k])) | about


def _span(aged: Aged, version: int, period: int) -> dict[str, Any]:
    days = (day_of(aged.periods.start(place)) for place in (period, period + 1))
    return {"version": aged.versions[version]} | dict(zip(("from", "to"), days, strict=True))


def limit_of(text: str) -> tuple[str, str, float]:
    """What is measured, < or >, and the limit.

    >>> limit_of("accuracy < 0.8")
    ('accuracy', '<', 0.8)

    Raises BadConfig for another text.
    """
    match = ALARM.fullmatch(text)
    if match is None:
        expected = "Expected accuracy, forecast, slope or half_life_days, < or >, and a number, as in accuracy<0.8."
        raise BadConfig(f"--alarm is {text!r}.", expected)
    limit = float(match[3])
    if match[1] in SHARES and not 0 <= limit <= 1:
        raise BadConfig(f"--alarm is {text!r}.", f"Expected a share from 0 to 1 of {match[1]}, such as 0.8.")
    return match[1], match[2], limit


def alarm_of(aged: Aged, text: str) -> dict[str, Any]:
    """Whether a limit is crossed with confidence: the whole 95 % interval lies beyond it, and labels speak of all rows.

    text: accuracy (of the newest version in its last complete period), forecast (of it, the furthest one), slope or
    half_life_days, then < or >, then a number. Raises BadConfig."""
    name, sign, limit = limit_of(text)
    value, low, high = plain(_measured(aged, name))
    crossed = (high is not None and high < limit) if sign == "<" else (low is not None and low > limit)
    crossed = crossed and aged.cells.labels != "only"
    looks = len(np.unique(aged.cells.period[aged.cells.usable]))
    some = f"after each of {looks} {aged.periods.unit}s in up to {100 * (1 - (1 - FALSE) ** looks):.0f} %"
    because = f"One look is a false alarm in {100 * FALSE:g} %, looks {some}."
    return {"limit": text.strip(), "value": value, "low": low, "high": high, "crossed": crossed, "because": because}


def _measured(aged: Aged, name: str) -> tuple[float | None, ...]:
    """Value, low, high."""
    cells = aged.cells
    if name == "slope":
        return float(aged.slope.value), float(aged.slope.low), float(aged.slope.high)
    if name == "half_life_days":
        half = aged.half_life
        return (None,) * 3 if half is None else tuple(x * aged.days_a_period for x in (half.value, half.low, half.high))
    last = int(cells.period[cells.usable].max())
    if name == "forecast":
        if not aged.ahead:
            return None, None, None
        furthest = max(aged.ahead, key=lambda ahead: (ahead.period, ahead.version))
        return furthest.value, furthest.low, furthest.high
    k = max(np.flatnonzero(cells.usable & (cells.period == last)).tolist(), key=lambda k: int(cells.version[k]))
    return float(cells.accuracy[k]), float(cells.low[k]), float(cells.high[k])


def answer(aged: Aged) -> Answer:
    """Headline, key sentence, takeaways, and what follows."""
    stale = aged.stale is not None and aged.stale.shown
    parts = [_staleness(aged), _fall(aged)] if stale else [_fall(aged), _staleness(aged)]
    if aged.cells.moved and not math.isnan(aged.fixed_slope.low) and not aged.cells.labels:
        parts.append(f"At a constant mix of classes and groups it changes by {changed(aged.fixed_slope)} points per "
                    f"{aged.periods.unit}; the mix moved by {100 * aged.cells.moved:.0f} %.")  # fmt: skip
    parts += [_half_life(aged), _ahead(aged), aged.advice.because]
    sentences, may, may_not = (
        tuple(Markup("{}").format(one) for one in of if one) for of in (parts, _may(aged), _may_not(aged))
    )
    return Answer(_headline(aged), sentences, may, may_not)


def changed(band: Band) -> str:
    """A change in points, and its interval.

    >>> import numpy as np
    >>> changed(Band(np.array(-0.02), np.array(-0.03), np.array(0.01)))
    '−2.0 (−3.0 to +1.0)'
    """
    low, high = (points(float(end), signed=True) for end in (band.low, band.high))
    return f"{points(float(band.value), signed=True)} ({low} to {high})"


def _headline(aged: Aged) -> str:
    if aged.stale is not None and aged.stale.shown:
        return f"Older versions are behind newer ones in the same {aged.periods.unit}: staleness"
    if aged.cells.labels == "only":
        return "Labels were chosen by confidence: the accuracy of all predictions is not known"
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
        return f"No staleness is shown: older versions were {changed(stale.behind)} points behind in the same {unit}."
    size = render("strong", f"{points(float(stale.behind.value))} points behind")
    text = "Older versions were {} a newer one in the same {} ({}), at the same mix of classes and groups."
    return Markup(text).format(size, unit, ends(float(stale.behind.low), float(stale.behind.high)))


def _fall(aged: Aged) -> Text:
    slope, unit = aged.slope, aged.periods.unit
    if math.isnan(slope.value):
        return "Each version was tested at one age only."
    if aged.cells.labels == "only":
        return "Some scores have no label: the results are of labelled predictions only."
    if math.isnan(slope.low):
        return (
            f"Accuracy changes by {points(float(slope.value), True)} points per {unit}: too few cells for an interval."
        )
    if slope.low <= 0 <= slope.high:
        low, high = (points(float(end), signed=True) for end in (slope.low, slope.high))
        return f"Accuracy of a version changes by {low} to {high} points per {unit}."
    smaller, larger = sorted((abs(float(slope.low)), abs(float(slope.high))))
    size = f"{'fell' if slope.value < 0 else 'rose'} {points(abs(float(slope.value)))} points per {unit}"
    return Markup("In this log the accuracy of a version {} ({} to {}).").format(
        render("strong", size), points(smaller), points(larger)
    )


def _half_life(aged: Aged) -> Text:
    half, unit = aged.half_life, aged.periods.unit
    if half is None or half.why == "no later test periods":
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
    name = aged.versions[last.version]
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
        may_not.append("anything about predictions without labels")
    return [*may_not, "how a version would do at an age at which none was tested"]
