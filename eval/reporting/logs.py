"""What a log says: the page of `driftline age`, `age --json` as plain data, limits of `--alarm`, and sentences.

Only what an older version is behind a newer one in the same period is staleness; else accuracy falls.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from driftline.curate.core.atomic_io import write_json, write_text
from driftline.curate.core.errors import BadConfig
from driftline.eval.logs.age import Aged, one_season
from driftline.eval.logs.cells import day_of
from driftline.eval.plotting.charts import Figure, Section, lines
from driftline.eval.reporting.answer import Answer
from driftline.eval.reporting.markup import Cell, environment, render, script, table
from driftline.eval.reporting.text import counted, ends, interval, points
from driftline.eval.scoring.aggregate import plain
from driftline.eval.scoring.bands import Band

TITLE = "This model in service"
CAUSES = {"harder": "the data got harder", "older": "the model is behind a newer one", "together": "together"}
ALARM = re.compile(r"\s*(accuracy|forecast|slope|half_life_days)\s*([<>])\s*(-?\d+(?:\.\d+)?)\s*")
SHARES = ("accuracy", "forecast")
FALSE = 0.025  # that an interval lies beyond the truth, on one side
Text = Markup | str


@dataclass(frozen=True, repr=False)
class Ages(Aged):
    """What a log says about ageing, with ways to show it."""

    def json(self, alarm: str | None = None) -> dict[str, Any]:
        """What `driftline age --json` prints. alarm: a limit, as in accuracy<0.8."""
        return document(self, alarm)

    def page(self, out: str | Path) -> Path:
        """Write the page, a file that ends with .html or a folder, and age.json beside it; returns its path."""
        return write(self, Path(out))

    def __repr__(self) -> str:
        names = ", ".join(self.versions)
        return f"<{int(self.cells.rows.sum()):,} predictions of {names} in {len(self.periods)} {self.periods.unit}s>"


def write(aged: Aged, out: Path, alarm: str | None = None) -> Path:
    """Write the page, and age.json beside it. out: a file that ends with .html, or a folder."""
    page = out if out.suffix == ".html" else out / "index.html"
    screen = {"answer": answer(aged), "first": _by_time(aged), "retrain": "", "second": _by_age(aged)}
    counts = table(["rows", "number"], [[name.replace("_", " "), f"{n:,}"] for name, n in aged.counts.items()])
    rows = Section("rows", "Every prediction", counts, folded=True)
    html = environment().get_template("age.html.j2").render(
        title=TITLE, up="", notice="", screen=screen, notes=aged.notes,
        sections=[_versions(aged), _why(aged), rows], inline=script(),
    )  # fmt: skip
    write_json(page.with_name("age.json"), document(aged, alarm))
    write_text(page, html)
    return page


def _by_time(aged: Aged) -> Figure:
    cells, use = aged.cells, aged.cells.usable
    series: dict[str, Any] = {}
    bands: dict[str, Any] = {}
    for v, version in enumerate(aged.versions):
        of = use & (cells.version == v)
        if not of.any():
            continue
        series[version] = (cells.period[of].tolist(), cells.accuracy[of].tolist())
        bands[version] = (cells.low[of].tolist(), cells.high[of].tolist())
        if coming := [one for one in aged.ahead if one.version == v]:
            name = f"{version}, forecast"
            series[name] = ([one.period for one in coming], [one.value for one in coming])
            bands[name] = ([one.low for one in coming], [one.high for one in coming])
    last = max(x for xs, _ in series.values() for x in xs)
    letters = {"month": 7, "year": 4}.get(aged.periods.unit)  # of a day; None: all
    every = range(int(cells.period.min()), int(last) + 1)
    dates = {float(p): day_of(aged.periods.start(p))[:letters] for p in every}
    picture = lines(series, "", bands=bands, from_zero=False, dots=True, dates=dates)
    unit = aged.periods.unit
    caption = f"Accuracy (%) of each version by {unit}, with 95 % intervals. Forecast: if the trend continues."
    if cells.pending.any():
        caption += " The last labels are still to come: these periods have no measured point."
    return Figure("Accuracy over time", caption, picture)


def _by_age(aged: Aged) -> Figure | None:
    curve = aged.curve
    if len(curve.lags) < 2:
        return None
    unit, first, later = aged.periods.unit, int(curve.versions[0]), curve.versions[1:]
    youngest = aged.cells.version[aged.cells.usable & (aged.cells.lag == curve.lags[0])]
    name = "all versions" if first > 1 else aged.versions[int(youngest[0])]
    there, band = curve.versions > 0, curve.accuracy
    began = "the training data ends" if all(map(aged.stated.get, aged.versions)) else "training or first prediction"
    picture = lines(
        {name: (curve.lags[there].tolist(), band.value[there].tolist())}, f"{unit}s since {began}",
        bands={name: (band.low[there].tolist(), band.high[there].tolist())}, from_zero=False, dots=True,
    )  # fmt: skip
    caption = f"Accuracy (%) at each age, with 95 % intervals over labels and {unit}s."
    if first > 1:
        fewest, most = int(later.min()), counted(int(later.max()), "version")
        caption += (
            f" The first point is the mean of {first} versions. Each later point adds the mean change of those "
            f"versions that were also tested at its age: {most if fewest == later.max() else f'{fewest} to {most}'}."
        )
    else:
        caption += f" Only {name} was tested at the first age: the curve shows that version."
    return Figure("Accuracy by age", caption, picture)


def _versions(aged: Aged) -> Section:
    rows, cells = [], aged.cells
    for v, version in enumerate(aged.versions):
        of = np.flatnonzero(cells.usable & (cells.version == v))
        of = of[[0, -1][: len(of)]]
        date = aged.stated.get(version)
        ages = [f"after {cells.lag[k]}" if cells.lag[k] else "newly trained" for k in of]
        values = [Cell(points(cells.accuracy[k]), f"{ends(cells.low[k], cells.high[k])}; {age}")
                  for k, age in zip(of, ages, strict=True)]  # fmt: skip
        values += [Cell("–")] * (2 - len(values))
        n = int(cells.labelled[cells.version == v].sum())
        rows.append([version, "not stated" if date is None else day_of(date), *values,
                     f"{int(cells.rows[cells.version == v].sum()):,}", f"{n:,}"])  # fmt: skip
    heads = ["version", "trained to", "first", "last", "predictions", "labels"]
    unit = aged.periods.unit
    note = f"Accuracy (%) in the first and the last {unit} with enough labels; ages in {unit}s."
    return Section("versions", "Versions side by side", table(heads, rows) + render("soft", note))


def _why(aged: Aged) -> Section:
    causes = aged.split
    if causes is None:
        return Section("why", "Old model or harder data", render("soft", aged.split_because))
    rows = [[text, Cell(*interval(getattr(causes, name)))] for name, text in CAUSES.items()]
    note = (
        f"Points lost since the version was young, over {counted(causes.pairs, 'pair')} of an old and a newly trained "
        f"version in one {aged.periods.unit}, at the same mix of classes and groups. With 95 % intervals of labels."
    )
    return Section("why", "Old model or harder data", table(["cause", "points"], rows) + render("soft", note))


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
        more = f"; if the trend continues, after {half.extrapolated:.0f}" if math.isfinite(half.extrapolated) else ""
        return f"Half of the accuracy above chance was not lost within {half.tested:.0f} {unit}s{more}."
    high = "more" if math.isinf(half.high) else f"{half.high:.1f}"
    return f"Half of the accuracy above chance was lost after {half.value:.1f} {unit}s ({half.low:.1f} to {high})."


def _ahead(aged: Aged) -> Text:
    if not aged.ahead:
        return "" if aged.cells.labels == "only" else f"Too few {aged.periods.unit}s have enough labels for a forecast."
    last = max(aged.ahead, key=lambda one: (one.period, one.version))
    where = f"If the trend continues, in the {aged.periods.unit} from {day_of(aged.periods.start(last.period))}"
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
    return may or ["the accuracy of each version in each period, within its interval"]


def _may_not(aged: Aged) -> list[Text]:
    may_not = []
    if aged.stale is None or not aged.stale.shown:
        may_not.append(
            "that a model gets stale: harder data look the same, and no older version is shown to be behind a newer one"
        )
    if one_season(aged.periods):
        may_not.append("that the trend continues: a log of less than two years cannot exclude a season")
    if aged.cells.labels == "only":
        may_not.append("anything about predictions without labels")
    return [*may_not, "how a version would do at an age at which none was tested"]
