"""Limits of `driftline age --alarm`: crossed with confidence, or not."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from driftline.curate.core.errors import BadConfig
from driftline.eval.logs.age import Aged
from driftline.eval.plain import plain

ALARM = re.compile(r"\s*(accuracy|forecast|slope|half_life_days)\s*([<>])\s*(-?\d+(?:\.\d+)?)\s*")
SHARES = ("accuracy", "forecast")
FALSE = 0.025  # that an interval lies beyond the truth, on one side


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
        one = max(aged.ahead, key=lambda ahead: (ahead.period, ahead.version))
        return one.value, one.low, one.high
    k = max(np.flatnonzero(cells.usable & (cells.period == last)).tolist(), key=lambda k: int(cells.version[k]))
    return float(cells.accuracy[k]), float(cells.low[k]), float(cells.high[k])
