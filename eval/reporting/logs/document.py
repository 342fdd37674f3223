"""`age --json`: what a log says, as plain data."""

from __future__ import annotations

from typing import Any

import numpy as np

from driftline.eval.logs.age import Aged
from driftline.eval.logs.forecast import Ahead
from driftline.eval.logs.periods import day_of
from driftline.eval.plain import plain
from driftline.eval.reporting.logs.alarm import alarm_of
from driftline.eval.reporting.logs.sentences import answer


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
    days = (day_of(aged.start_of(place)) for place in (period, period + 1))
    return {"version": aged.versions[version].name} | dict(zip(("from", "to"), days, strict=True))


def _ahead(aged: Aged, one: Ahead) -> dict[str, Any]:
    about = {"age_days": aged.age_days(one.version, one.period), "value": one.value, "low": one.low, "high": one.high}
    return _span(aged, one.version, one.period) | about | {"extrapolated": one.extrapolated}
