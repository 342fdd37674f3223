"""`age --json`: what a log says, as plain data."""

from __future__ import annotations

from typing import Any

import numpy as np

from driftline.eval.reporting.service_log.alarm import alarm_of, number
from driftline.eval.service_log.age import Aged
from driftline.eval.service_log.forecast import Ahead
from driftline.eval.service_log.parts import Part
from driftline.eval.service_log.periods import day_of


def document(aged: Aged, alarm: str | None = None) -> dict[str, Any]:
    """JSON of everything; numbers that are not known are None. Raises BadConfig for an alarm that is none."""
    cells, decay, fit, names = aged.cells, aged.decay, aged.fit, [one.name for one in aged.versions]
    half = [number(one * aged.days_a_period) for one in (decay.half_life, decay.half_life_low, decay.half_life_high)]
    base = int(decay.lags[0]) if len(decay.lags) else 0
    out = {
        "cells": [_cell(aged, k) for k in np.flatnonzero(cells.usable).tolist()],
        "gaps": [_gap(aged, k) for k in np.flatnonzero(~cells.usable).tolist()],
        "period": aged.periods.unit,
        "slope_per_period": {"value": number(fit.slope), "low": number(fit.low), "high": number(fit.high)},
        "curve": [
            {"age_periods": int(lag), "value": number(value), "low": number(low), "high": number(high),
             "versions": int(n)}
            for lag, value, low, high, n in zip(
                decay.lags, decay.accuracy, decay.low, decay.high, decay.versions, strict=True
            )
        ],
        "retained": {
            str(int(lag) - base): number(left) for lag, left in zip(decay.lags[1:], decay.retained[1:], strict=True)
        },
        "half_life_days": half[0],
        "half_life_interval_days": half[1:],
        "split": None if aged.split is None else {"harder": aged.split.harder, "older": aged.split.older},
        "split_intervals": aged.split and {name: ends for name, (_, *ends) in aged.split.parts.items()},
        "split_because": aged.split_because or None,
        "forecast": [_ahead(aged, one, names) for one in aged.ahead],
        "advice": {
            "retrain": aged.advice.retrain,
            "payback_periods": number(aged.advice.payback),
            "gain": aged.advice.gain and dict(zip(("value", "low", "high"), aged.advice.gain, strict=True)),
            "because": aged.advice.because,
        },
        "classes": [_part(one) for one in aged.classes],
        "groups": [_part(one) for one in aged.groups],
        "confidence": [vars(one) | {"age_periods": one.lag} for one in aged.confidence],
        "lost": None
        if aged.lost is None
        else vars(aged.lost) | {"old": names[aged.lost.old], "fresh": names[aged.lost.fresh]},
        "counts": aged.counts,
        "notes": list(aged.notes),
    }  # fmt: skip
    if alarm is not None:
        out["alarm"] = alarm_of(aged, alarm)
    return out


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
    days = (day_of(aged.start_of(place)) for place in (period, period + 1))
    return {"version": aged.versions[version].name} | dict(zip(("from", "to"), days, strict=True))


def _ahead(aged: Aged, one: Ahead, names: list[str]) -> dict[str, Any]:
    about = {"age_days": aged.age_days(one.version, one.period), "value": one.value, "low": one.low, "high": one.high}
    return _span(aged, one.version, one.period) | about | {"extrapolated": one.extrapolated}


def _part(one: Part) -> dict[str, Any]:
    slope = None
    if one.fit is not None:
        slope = {"value": number(one.fit.slope), "low": number(one.fit.low), "high": number(one.fit.high)}
    return {"name": one.name, "n": one.n, "accuracy": one.accuracy, "slope_per_period": slope}
