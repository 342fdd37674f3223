"""Calibration over time, for a report: do models become overconfident as they age?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from driftline.eval.plotting.charts import Figure, Section, lines
from driftline.eval.reporting.ageing import after, interval
from driftline.eval.reporting.markup import Cell, render, table
from driftline.eval.rows import Run
from driftline.eval.scoring.calibration import Calibration, calibration
from driftline.eval.scoring.decay import ages_shown
from driftline.stream_builder.stream import Stream

NAMED = 6  # learners that the sentence names


def facts_of(runs: Sequence[Run], stream: Stream | None) -> dict[str, Any] | None:
    """Calibration of each result of `summary` of the same runs from the first age on, as plain data; None if no learner
    gives confidences."""
    results = [None if one is None else _facts(one) for one in calibration(runs, stream)]
    return {"results": results} if any(results) else None


def _facts(one: Calibration) -> dict[str, Any] | None:
    later = one.lags >= 0
    if not later.any():
        return None
    bands = {
        name: {end: [_plain(v) for v in getattr(getattr(one, name), end)[later]] for end in ("value", "low", "high")}
        for name in ("gap", "ece", "brier")
    }
    ages = {name: getattr(one, name)[later].tolist() for name in ("age", "youngest", "oldest")}
    return {**ages, "pairs": one.n[later].sum(1).tolist(), **bands}


def _plain(value: float) -> float | None:
    return round(float(value), 6) if math.isfinite(value) else None


def section(document: Mapping[str, Any]) -> tuple[Figure, Section] | None:
    """The chart of the calibration error by age, and a table; None without confidences."""
    shown = [(r["label"], r["calibration"]) for r in document["results"] if r.get("calibration")]
    shown = [(name, facts) for name, facts in shown if None not in facts["ece"]["value"]]
    if not shown:
        return None
    unit = document["ageing"]["unit"] if document.get("ageing") else "steps"
    series = {name: (facts["age"], facts["ece"]["value"]) for name, facts in shown}
    bands = {
        name: (np.maximum(facts["ece"]["low"], 0).tolist(), facts["ece"]["high"])
        for name, facts in shown
        if None not in (*facts["ece"]["low"], *facts["ece"]["high"])
    }
    caption = (
        "Calibration error (15 bins, without what chance adds to it), in points: how far confidence and accuracy are "
        "apart. A model that is sure and wrong has a high one."
    )
    without = [r["learner"] for r in document["results"] if not r.get("calibration")]
    if without:
        caption += f" Without probabilities, and so without calibration: {', '.join(without)}."
    picture = lines(series, f"{unit} from training to test", bands=bands, y_name="calibration error")
    chart = Figure("Calibration by age", caption, picture)
    measures = ("gap", "ece", "brier")
    rows = [
        [name, *(Cell(*interval(facts[what], at)) for what in measures for at in (0, _oldest(facts)))]
        for name, facts in shown
    ]
    old = f"after {after(shown[0][1], _oldest(shown[0][1]), unit)}"
    titles = ("confidence − accuracy", "calibration error", "Brier score")
    heads = ["learner", *(f"{title}, {when}" for title in titles for when in ("fresh", old))]
    grown = [name for name, facts in shown if _above(facts["gap"], _oldest(facts), 0)]
    content = render("calibration", grown[:NAMED], len(grown[NAMED:]), table(heads, rows))
    return chart, Section("calibration", "", content)


def _above(band: Mapping[str, Any], at: int, start: int) -> bool:
    low, high = band["low"][at], band["high"][start]
    return low is not None and high is not None and low > max(high, 0.0)


def _oldest(facts: Mapping[str, Any]) -> int:
    """Position of the oldest age that is on the curves of ageing."""
    return ages_shown(np.array(facts["pairs"])) - 1
