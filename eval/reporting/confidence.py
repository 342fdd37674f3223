"""Calibration over time, for a report: do models become overconfident as they age?"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from driftline.eval.plotting.charts import Figure, Section, lines
from driftline.eval.reporting.markup import Cell, render, table
from driftline.eval.reporting.text import after, interval
from driftline.eval.rows import Run
from driftline.eval.scoring.calibration import Calibration, calibration
from driftline.eval.scoring.decay import ages_shown
from driftline.eval.scoring.sums import Resampling

NAMED = 6  # learners that the sentence names


def facts_of(runs: Sequence[Run], resampling: Resampling) -> dict[str, Any] | None:
    """Calibration of each result of `summary` of the same runs; None if no learner gives confidences for later
    tests."""
    results = [one if one and (one.lags >= 0).any() else None for one in calibration(runs, None, resampling)]
    return {"results": results} if any(results) else None


def section(part: Mapping[str, Any]) -> tuple[Figure, Section] | None:
    """The chart of the calibration error by age, and a table; None without confidences."""
    shown = [(r["label"], _later(r["calibration"])) for r in part["results"] if r.get("calibration")]
    shown = [(name, one) for name, one in shown if not np.isnan(one.ece.value).any()]
    if not shown:
        return None
    unit = part["ageing"]["unit"] if part.get("ageing") else "steps"
    series = {name: (one.age.tolist(), one.ece.value.tolist()) for name, one in shown}
    bands = {
        name: (np.maximum(one.ece.low, 0).tolist(), one.ece.high.tolist())
        for name, one in shown
        if not np.isnan([one.ece.low, one.ece.high]).any()
    }
    caption = (
        "Calibration error (15 bins, without what chance adds to it), in points: how far confidence and accuracy are "
        "apart. A model that is sure and wrong has a high one."
    )
    without = [r["learner"] for r in part["results"] if not r.get("calibration")]
    if without:
        caption += f" Without probabilities, and so without calibration: {', '.join(without)}."
    picture = lines(series, f"{unit} from training to test", bands=bands, y_name="calibration error")
    rows = [
        [name, *(Cell(*interval(band, at)) for band in (one.gap, one.ece, one.brier) for at in (0, _oldest(one)))]
        for name, one in shown
    ]
    old = f"{after(shown[0][1], _oldest(shown[0][1]), unit)} old"
    titles = ("confidence − accuracy", "calibration error", "Brier score")
    heads = ["learner", *(f"{title}, {when}" for title in titles for when in ("newly trained", old))]
    grown = [name for name, one in shown if one.gap.low[_oldest(one)] > max(float(one.gap.high[0]), 0.0)]
    content = render("calibration", grown[:NAMED], len(grown[NAMED:]), table(heads, rows))
    return Figure("Calibration by age", caption, picture), Section("calibration", "", content)


def _later(one: Calibration) -> Calibration:
    """From the first age on: without tests on the past."""
    later = one.lags >= 0
    changed: dict[str, Any] = {name: getattr(one, name)[later] for name in ("gap", "ece", "brier")}
    names = ("lags", "age", "youngest", "oldest", "confidence", "accuracy", "n")
    return replace(one, **changed | {name: getattr(one, name)[later] for name in names})


def _oldest(one: Calibration) -> int:
    """Position of the oldest age that is on the curves of ageing."""
    return ages_shown(one.n.sum(1)) - 1
