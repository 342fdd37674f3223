"""`age --json`: what a log says, as plain data; limits of `--alarm`, crossed with confidence or not."""

import re
from typing import Any

import numpy as np

from driftline.curate.core.errors import BadConfig
from driftline.eval.logs.age import Aged
from driftline.eval.logs.forecast import Ahead
from driftline.eval.logs.periods import day_of
from driftline.eval.plain import plain
from driftline.eval.reporting.logs.sentences import answer

ALARM = re.compile(r"\s*(accuracy|forecast|slope|half_life_days)\s*([<>])\s*(-?\d+(?:\.\d+)?)\s*")
SHARES = ("accuracy", "forecast")
FALSE = 0.025  # that an interval lies beyond the truth, on one side


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
        "forecast": [_ahead(aged, one) for one in aged.ahead],
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
    return {"version": aged.versions[version].name} | dict(zip(("from", "to"), days, strict=True))


def _ahead(aged: Aged, one: Ahead) -> dict[str, Any]:
    about = {"age_days": aged.age_days(one.version, one.period), "value": one.value, "low": one.low, "high": one.high}
    return _span(aged, one.version, one.period) | about | {"extrapolated": one.extrapolated}


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
