"""`dl.age`: the log of a model in service, from Python, and its page."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from driftline.curate.core.atomic_io import write_json, write_text
from driftline.eval.logs.age import Aged
from driftline.eval.logs.cells import day_of
from driftline.eval.plotting.charts import Figure, Section, lines
from driftline.eval.reporting.logs.document import answer, document
from driftline.eval.reporting.markup import Cell, environment, render, script, table
from driftline.eval.reporting.text import counted, ends, interval, points

TITLE = "This model in service"
CAUSES = {"harder": "the data got harder", "older": "the model is behind a newer one", "together": "together"}


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
    caption = (
        f"Accuracy (%) of each version by {unit}, with 95 % intervals. Forecast: what the next {unit}s will "
        "show, if it goes on so."
    )
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
    began = "the training data ends" if all(map(aged.stated.get, aged.versions)) else "training or the first prediction"
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
