"""The page of `driftline age`: the answer first, then curves, tables, and what is not known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from driftline.curate.core.atomic_io import write_json, write_text
from driftline.eval.plotting.charts import Figure, Section, lines
from driftline.eval.reporting.files.figures import letters, save_figures
from driftline.eval.reporting.markup import Cell, environment, render, script, table
from driftline.eval.reporting.service_log.document import document
from driftline.eval.reporting.service_log.sentences import answer, ends, of_period, points, share
from driftline.eval.reporting.text import counted
from driftline.eval.service_log.age import Aged
from driftline.eval.service_log.cells import LEAST
from driftline.eval.service_log.parts import Part
from driftline.eval.service_log.periods import day_of

TITLE = "How this model ages"
ROWS = 400  # of a table
PARTS = 12
CAUSES = {"harder": "the data got harder", "older": "the model is old", "together": "together"}


def write(aged: Aged, out: Path, title: str = "", alarm: str | None = None) -> Path:
    """Write the page, and age.json beside it. out: a file that ends with .html, or a folder."""
    page = out if out.suffix == ".html" else out / "index.html"
    html = environment().get_template("age.html.j2").render(
        title=title or TITLE, up="", notice="", answer=answer(aged), notes=aged.notes, figures=figures(aged),
        sections=sections(aged), inline=script(),
    )  # fmt: skip
    write_json(page.with_name("age.json"), document(aged, alarm))
    write_text(page, html)
    return page


def save(aged: Aged, out: Path) -> list[Path]:
    """Write the charts for paper, each as SVG, PDF and PNG for a column and for the whole width; returns the files."""
    named = [(name, name, one) for one in figures(aged) for name in [letters(one.title.lower())]]
    return save_figures(named, out)


def figures(aged: Aged) -> list[Figure]:
    """Accuracy by calendar time, and by age."""
    return [one for one in (_by_time(aged), _by_age(aged)) if one is not None]


def _by_time(aged: Aged) -> Figure:
    cells, use = aged.cells, aged.cells.usable
    series: dict[str, Any] = {}
    bands: dict[str, Any] = {}
    for v, version in enumerate(aged.versions):
        of = use & (cells.version == v)
        if not of.any():
            continue
        series[version.name] = (cells.period[of].tolist(), cells.accuracy[of].tolist())
        bands[version.name] = (cells.low[of].tolist(), cells.high[of].tolist())
        if coming := [one for one in aged.ahead if one.version == v]:
            name = f"{version.name}, forecast"
            series[name] = ([one.period for one in coming], [one.value for one in coming])
            bands[name] = ([one.low for one in coming], [one.high for one in coming])
    last = max(x for xs, _ in series.values() for x in xs)
    dates = {float(p): _date(aged, p) for p in range(int(cells.period.min()), int(last) + 1)}
    picture = lines(series, "", bands=bands, from_zero=False, dots=True, dates=dates)
    caption = (
        f"Accuracy in per cent of each version by {of_period(aged)}, with 95 % intervals. Forecast: what the next "
        f"{of_period(aged)}s will show, if it goes on so."
    )
    if aged.cells.pending.any():
        caption += " The last labels are still to come: these periods have no measured point."
    return Figure("Accuracy over time", caption, picture)


def _by_age(aged: Aged) -> Figure | None:
    decay = aged.decay
    if len(decay.lags) < 2:
        return None
    unit, first, later = of_period(aged), int(decay.versions[0]), decay.versions[1:]
    youngest = aged.cells.version[aged.cells.usable & (aged.cells.lag == decay.lags[0])]
    name = "all versions" if first > 1 else aged.versions[int(youngest[0])].name
    picture = lines(
        {name: (decay.lags.tolist(), decay.accuracy.tolist())}, f"{unit}s since the training data ends",
        bands={name: (decay.low.tolist(), decay.high.tolist())}, from_zero=False, dots=True,
    )  # fmt: skip
    caption = f"Accuracy in per cent at each age, with 95 % intervals over labels and {unit}s."
    if first > 1:
        fewest, most = int(later.min()), counted(int(later.max()), "version")
        caption += (
            f" The first point is the mean of {first} versions. Each later point adds the mean change of those "
            f"versions that were also tested at its age: {most if fewest == later.max() else f'{fewest} to {most}'}."
        )
    else:
        caption += f" Only {name} was tested at the first age: the curve shows that version."
    return Figure("Accuracy by age", caption, picture)


def sections(aged: Aged) -> list[Section]:
    """Everything below the charts."""
    made = (
        _versions(aged), _why(aged), _lost(aged), _parts("classes", "Classes that age fastest", aged, aged.classes),
        _parts("groups", "Groups that age fastest", aged, aged.groups), _confidence(aged),
        _all_cells(aged), _rows(aged),
    )  # fmt: skip
    return [one for one in made if one is not None]


def _date(aged: Aged, period: int) -> str:
    day = day_of(aged.start_of(period))
    return {"month": day[:7], "year": day[:4]}.get(aged.periods.unit, day)


def _versions(aged: Aged) -> Section:
    rows, cells = [], aged.cells
    for v, version in enumerate(aged.versions):
        of = np.flatnonzero(cells.usable & (cells.version == v))
        of = of[[0, -1][: len(of)]]
        dates = [None if date is None else day_of(date) for date in (version.trained_to, version.deployed_from)]
        ages = [f"after {cells.lag[k]}" if cells.lag[k] else "fresh" for k in of]
        values = [Cell(share(cells.accuracy[k]), f"{ends(cells.low[k], cells.high[k])}; {age}")
                  for k, age in zip(of, ages, strict=True)]  # fmt: skip
        values += [Cell("–")] * (2 - len(values))
        test = "–" if version.accuracy is None else share(version.accuracy)
        n = int(cells.labelled[cells.version == v].sum())
        rows.append([version.name, *(date or "not stated" for date in dates), test, *values,
                     f"{int(cells.rows[cells.version == v].sum()):,}", f"{n:,}"])  # fmt: skip
    heads = ["version", "trained to", "deployed", "on its test set", "first", "last", "predictions", "labels"]
    unit = of_period(aged)
    note = f"Accuracy in per cent, in the first and the last {unit} with enough labels; ages in {unit}s."
    return Section("versions", "Versions side by side", table(heads, rows) + render("soft", note))


def _why(aged: Aged) -> Section:
    if aged.split is None:
        return Section("why", "Why it falls", render("soft", aged.split_because))
    rows = [
        [CAUSES[part], Cell(points(value), ends(low, high, signed=True))]
        for part, (value, low, high) in aged.split.parts.items()
    ]
    note = (
        f"Points lost since the version was young, over {counted(aged.split.pairs, 'pair')} of an old and a fresh "
        f"version in one {of_period(aged)}: what fresh versions lose between the two times, and what the old one is "
        "behind the fresh one. With 95 % intervals of labels."
    )
    return Section("why", "Why it falls", table(["cause", "points"], rows) + render("soft", note))


def _lost(aged: Aged) -> Section | None:
    lost = aged.lost
    if lost is None or not lost.n:
        return None
    old, fresh = aged.versions[lost.old].name, aged.versions[lost.fresh].name
    text = f"Of {lost.both:,} inputs that {old} and {fresh} answered, {old} alone is wrong on {lost.n:,}."
    rows = [[one["id"], one["label"], one["answer"], one.get("path", "–")] for one in lost.examples]
    heads = ["id", "label", f"{old} answered", "path"]
    return Section("lost", "Inputs that were lost", render("soft", text) + table(heads, rows))


def _parts(anchor: str, title: str, aged: Aged, parts: Sequence[Part]) -> Section | None:
    falling = [one for one in parts if one.fit is not None]
    if len(falling) < 2:
        return None
    rows = []
    for one in falling[:PARTS]:
        assert one.fit is not None
        slope = Cell(points(one.fit.slope), ends(one.fit.low, one.fit.high, signed=True))
        rows.append([one.name, f"{one.n:,}", share(one.accuracy), slope])
    more = f" {PARTS} of {len(falling)}." if len(falling) > PARTS else ""
    note = (
        f"Points a {of_period(aged)} with 95 % intervals, the fastest first.{more} Many are compared: the first looks "
        "worse than it is."
    )
    heads = ["class" if anchor == "classes" else "group", "labels", "accuracy", f"change a {of_period(aged)}"]
    return Section(anchor, title, table(heads, rows) + render("soft", note))


def _confidence(aged: Aged) -> Section | None:
    if not aged.confidence:
        return None
    rows = [
        [
            f"{one.lag}",
            f"{one.n:,}",
            share(one.confidence),
            share(one.accuracy),
            Cell(points(one.gap), ends(one.low, one.high, signed=True)),
        ]
        for one in aged.confidence
    ]
    first, last = aged.confidence[0], aged.confidence[-1]
    text = "Confidence stays as true as it was."
    if len(aged.confidence) > 1 and last.low > first.high:
        text = "It becomes overconfident with age."
    heads = [f"age in {of_period(aged)}s", "labels", "mean confidence", "accuracy", "overconfident by"]
    return Section("confidence", "Confidence by age", render("soft", text) + table(heads, rows))


def _all_cells(aged: Aged) -> Section:
    cells, rows = aged.cells, []
    for k in range(min(len(cells), ROWS)):
        why = "to come" if cells.pending[k] else f"fewer than {LEAST}" if math.isnan(cells.accuracy[k]) else ""
        why = "before its training" if cells.lag[k] < 0 else why
        value = Cell("–", why) if why else Cell(share(cells.accuracy[k]), ends(cells.low[k], cells.high[k]))
        rows.append([aged.versions[int(cells.version[k])].name, _date(aged, int(cells.period[k])), f"{cells.lag[k]}",
                     f"{cells.rows[k]:,}", f"{cells.labelled[k]:,}", value])  # fmt: skip
    heads = ["version", of_period(aged), "age", "predictions", "labels", "accuracy"]
    more = f" The first {ROWS} of {len(cells)}; age.json has all." if len(cells) > ROWS else ""
    return Section("cells", "Every cell", table(heads, rows) + render("soft", more.strip()), folded=True)


def _rows(aged: Aged) -> Section:
    rows = [[name.replace("_", " "), f"{n:,}"] for name, n in aged.counts.items()]
    return Section("rows", "Every row", table(["rows", "number"], rows), folded=True)
