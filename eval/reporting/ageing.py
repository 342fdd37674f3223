"""How models age, for a report: facts of a document, curves, small multiples, and what a fall comes from."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from driftline.eval.plotting.cells import Strip, cells, strips
from driftline.eval.plotting.charts import Figure, Section, lines
from driftline.eval.plotting.frames import SHADED
from driftline.eval.reporting import markup
from driftline.eval.reporting.markup import Cell, render
from driftline.eval.rows import Run
from driftline.eval.scoring.ageing import Ageing, ageing
from driftline.eval.scoring.net import Net
from driftline.eval.scoring.sums import Resampling
from driftline.stream_builder.stream import Stream

from .text import after, counted, ends, half_life_text, interval, points, seconds_text, span

CLASSES, TABLES = 24, 3  # with their accuracy by age; learners with a table of it
RETRAINED = 3  # learners with a table of how often to retrain
UNKNOWN = "not known"
CONTROLLED = "{}, if nothing aged"
Part = Mapping[str, Any]  # one of `ranking.parts`; its results have `aged`, an `Ageing` or None


def facts_of(runs: Sequence[Run], stream: Stream | None, resampling: Resampling) -> dict[str, Any] | None:
    """How each result of `summary` of the same runs ages (`results`), and the stream's unit, names, dates and classes;
    None if no learner was tested after its training."""
    aged = [one if one and one.base < len(one.lags) else None for one in ageing(runs, stream, resampling)]
    first = next((one for one in aged if one is not None), None)
    if first is None:
        return None
    times = first.timeline
    classes = list(stream.classes) if stream is not None else list(map(str, range(len(first.curve.accuracy_of.value))))
    about = {"unit": times.unit, "names": list(times.names), "dates": list(times.dates), "classes": classes}
    return about | {"results": aged}


def retrained(aged: Ageing) -> bool:
    """Whether a learner has models of several ages whose answers differ: else there is no newer one to compare with."""
    return bool(np.nan_to_num(aged.older.value).any())


def aged_of(part: Part) -> list[tuple[str, Ageing]]:
    """Labels of the results that age, in the part's order; without learners that never look at a sample, if there are
    others: their level would flatten the curves."""
    every = [(r["label"], r["aged"], r.get("standing")) for r in part["results"] if r.get("aged")]
    seeing = [(label, aged) for label, aged, standing in every if standing != "blind"]
    return seeing or [(label, aged) for label, aged, _ in every]


def together(part: Part) -> list[tuple[str, Ageing]]:
    """Those that are retrained and tested on the same steps at all ages of the curve: the lines of one chart. The steps
    are those of the first one that has some."""
    several = [(label, aged) for label, aged in aged_of(part) if len(aged.curve.tested) and retrained(aged)]
    return [(label, aged) for label, aged in several if np.array_equal(aged.curve.tested, several[0][1].curve.tested)]


def _known(x: Any, *ys: Any) -> list[list[float]]:
    """Places and values where the first values are known."""
    known = ~np.isnan(np.asarray(ys[0], float))
    return [np.asarray(values, float)[known].tolist() for values in (x, *ys)]


def curves(part: Part) -> Figure | None:
    """Accuracy over age, a line for each learner that is retrained, all on the same test steps; None without two
    ages."""
    shown = together(part)
    if not any(len(aged.curve.age) > 1 for _, aged in shown):
        return None
    unit, series, bands, like = part["ageing"]["unit"], {}, {}, {}
    for label, aged in shown:
        curve = aged.curve
        x, y, low, high = _known(curve.age, curve.accuracy.value, curve.accuracy.low, curve.accuracy.high)
        series[label] = (x, y)
        if not np.isnan([*low, *high]).any():
            bands[label] = (low, high)
    if controlled := _controlled(part, dict(shown)):
        label, values = controlled
        series[CONTROLLED.format(label)] = values
        like[CONTROLLED.format(label)] = label
    loose = [label for label, aged in shown if len(aged.curve.tested) == 1]  # a line through one test each is no trend
    picture = lines(series, f"{unit} from training to test", bands=bands, from_zero=False, loose=loose, like=like)
    return Figure(f"Accuracy by age, {part['stream']['name']}", _curve_note(part, shown, like), picture)


def _controlled(part: Part, shown: Mapping[str, Ageing]) -> tuple[str, tuple[list[float], list[float]]] | None:
    """The first learner with a control, and its accuracy by age if it lost what it loses with permuted times."""
    for r in part["results"]:
        net, aged = r.get("net"), shown.get(r["label"])
        if net is None or aged is None or net.points_per_year is None or aged.lags[aged.base]:
            continue
        count = min(len(aged.curve.age), len(net.age) + 1)
        lost = np.concatenate([[0.0], net.gross.by_age[: count - 1] - net.ageing.by_age[: count - 1]]) / 100
        x, y = _known(aged.curve.age[:count], aged.curve.accuracy.value[0] - lost)
        return (r["label"], (x, y)) if len(x) > 1 else None
    return None


def _curve_note(part: Part, shown: Sequence[tuple[str, Ageing]], like: Mapping[str, str]) -> str:
    first, unit = shown[0][1], part["ageing"]["unit"]
    count = counted(len(first.curve.tested), "test period")
    text = f"Every point is a mean over the same {count}, which have models of all these ages."
    if like:
        text += f" Dashed: {next(iter(like.values()))} if nothing aged: its fall with times permuted within classes."
    ages = [after(first.curve, at, unit) for at in range(len(first.curve.age))]
    ranges = [age for age in ages if age.endswith(")")]
    text += f" Steps are not equally far apart, so ages are means: {', '.join(ranges)}." if ranges else ""
    drawn = "seeds and test samples" if len(first.seeds) > 1 else "test samples (1 seed)"
    text += f" Shaded{' (of the line under the pointer)' if len(shown) > SHADED else ''}: 95 % interval over {drawn}"
    text += ", samples of one uploader or group of near-duplicates resampled together." if first.clustered else "."
    names = {label for label, _ in shown}
    others = [r["label"] for r in part["results"] if r.get("aged") and r["label"] not in names]
    if others:
        why = "they are never retrained, see no sample or have other test samples"
        text += f" Not in the chart, because {why}: {', '.join(others)}."
    return text


def never(part: Part) -> Figure | None:
    """Models that are never retrained, on later and later test periods, beside a newly trained one on the same samples;
    None without both."""
    frozen = [
        r for r in part["results"]
        if r.get("aged") and r["matrix"] and not retrained(r["aged"]) and not r.get("standing")
    ]  # fmt: skip
    shown = dict(together(part))
    newest = next((r for r in part["results"] if r["label"] in shown and r["matrix"]), None)
    if not frozen or newest is None:
        return None
    lag = int(newest["aged"].lags[newest["aged"].base])
    fresh = np.diagonal(np.array(newest["matrix"], float), lag)
    steps = np.arange(lag, lag + len(fresh))
    series = {f"{newest['label']}, newly trained": _known(steps, fresh)}
    for r in frozen:
        series[r["label"]] = _known(steps, np.array(r["matrix"], float)[0, steps])
    pairs = {label: (x, y) for label, (x, y) in series.items() if x}
    if len(pairs) < 2:
        return None
    dates: dict[float, str] = dict(enumerate(part["names"]))
    caption = (
        f"Accuracy on each test period, on the same samples: {', '.join(r['label'] for r in frozen)} learned from the "
        f"first period only, {newest['label']} learned up to {'the tested one' if lag == 0 else 'the one before'}."
    )
    return Figure("Never retrained", caption, lines(pairs, "test period", from_zero=False, dots=True, dates=dates))


def retrain(part: Part) -> Markup | None:
    """What a new model every 1, 2, 4 steps reaches, and what that costs, of the first learners; None if nobody learns
    again."""
    shown = [r for r in part["results"] if r.get("cadences") and not r.get("standing") and "same_as" not in r]
    if not shown:
        return None
    rows = []
    for r in shown[:RETRAINED]:
        for one in r["cadences"]:
            behind = Cell(*interval(one.behind)) if one.every > 1 else Cell("–")
            cost = Cell(f"{one.trainings:.2g}", seconds_text(one.seconds))
            rows.append([r["label"], f"{one.every}", Cell(*interval(one.accuracy)), behind, cost])
    heads = ["learner", "new model every … steps", "accuracy", "behind a new model every step", "trainings per step"]
    note = "Accuracy in %, differences in percentage points, on the same test samples, with 95 % intervals."
    return Markup("<h3>How often to retrain</h3>") + markup.table(heads, rows) + render("soft", note)


def placebo(part: Part) -> Figure | None:
    """Net loss of each learner beside what each draw of its control loses against the others; None without controls."""
    rows = {}
    for r in part["results"]:
        net: Net | None = r.get("net")
        if net is not None and net.points_per_year is not None and len(net.placebo):
            value, low, high = (float(getattr(net.points_per_year, end)) for end in ("value", "low", "high"))
            drawn = f"{r['label']} ({net.draws} of {net.wanted} permutations)" if net.draws < net.wanted else r["label"]
            rows[drawn] = Strip(net.placebo.tolist(), value, low, high)
    if not rows:
        return None
    caption = (
        "Percentage points per year that models lose, net of the control, with 95 % intervals. Grey: each permutation "
        "against the others, which is what chance makes where nothing can age."
    )
    return Figure("Net loss against chance", caption, strips(rows, "points per year", {"0": 0.0}))


def by_class(part: Part) -> Figure | None:
    """Accuracy of each class by age, of the first learners, the class that falls most first; None without counts of
    classes."""
    shown, names = (together(part) or aged_of(part))[:TABLES], part["ageing"]["classes"]
    falls: dict[int, float] = {}
    for _, aged in shown:
        for c, values in enumerate(aged.curve.accuracy_of.value):
            numbers = values[~np.isnan(values)]
            if len(numbers) > 1:
                falls[c] = max(falls.get(c, -math.inf), float(numbers[0] - numbers[-1]))
    order = sorted(falls, key=lambda c: -falls[c])[:CLASSES]
    if len(order) < 2:
        return None
    tables = {}
    for label, aged in shown:
        values_of = {c: aged.curve.accuracy_of.value[c] for c in order if c < len(aged.curve.accuracy_of.value)}
        tables[label] = {
            names[c] if c < len(names) else str(c): [None if np.isnan(v) else float(v) for v in values]
            for c, values in values_of.items()
        }
    ages, unit = max((aged.curve.age for _, aged in shown), key=len), part["ageing"]["unit"]
    left_out = f" {CLASSES} of {len(falls)} classes." if len(falls) > CLASSES else ""
    note = f"In %; the class that falls most is first.{left_out} Across: {unit} from training to test."
    title = "Who loses: accuracy of each class"
    picture = cells(tables, [span(float(age)) for age in ages], (0.0, 1.0), title, ("class", unit))
    return Figure(title, note, picture)


def table(part: Part) -> Section | None:
    """How much each learner falls with age, and why."""
    shown = [r for r in part["results"] if r.get("aged")]
    if not shown:
        return None
    unit, first = part["ageing"]["unit"], (together(part) or aged_of(part))[0][1]
    nets = any(r.get("net") is not None and r["net"].points_per_year is not None for r in shown)
    last = len(first.curve.age) - 1
    rows = [[r["label"], *_fall(r, first, unit, nets)] for r in shown]
    heads = ["learner", "newly trained", f"{after(first.curve, last, unit)} old", "difference"]
    heads += [f"fall per {'year' if nets else unit.removesuffix('s')}"]
    heads += ["of it ageing", "class mix", "more data", "half-life"] if nets else []
    note = render("ageing_note", nets, unit, counted(len(first.curve.tested), "test period"), _chance(shown))
    return Section("ageing-table", "How much, and why", markup.table(heads, rows) + note)


def _fall(r: Mapping[str, Any], first: Ageing, unit: str, nets: bool) -> list[Cell]:
    """The cells of one learner."""
    aged: Ageing = r["aged"]
    net: Net | None = r.get("net")
    curve, reach = aged.curve, first.lags[first.base + len(first.curve.age) - 1]
    at = max(int((aged.lags[aged.base : aged.base + len(curve.age)] <= reach).sum()) - 1, 0)
    cells = [Cell(*interval(curve.accuracy, k)) for k in (0, at)]
    if not retrained(aged):
        why = "never retrained" if not r.get("standing") else "never learns"
        return [*cells, Cell(UNKNOWN, why), *[Cell("–")] * (5 if nets else 1)]
    cells.append(Cell(*interval(aged.older, at)))
    if net is None or net.points_per_year is None:
        gross = Cell(*interval(curve.loss)) if net is None or not nets else Cell(points(net.gross.per_year / 100))
        return [*cells, gross, *([Cell("–", "no control")] + [Cell("–")] * 3 if nets else [])]
    band = net.points_per_year
    own = Cell(points(net.ageing.per_year / 100), ends(float(band.low) / 100, float(band.high) / 100))
    cells += [Cell(points(net.gross.per_year / 100)), own]
    equal = "" if net.equal_data is None else f"{points(net.equal_data / 100)} with equal data"
    cells += [Cell(points(net.mix.per_year / 100)), Cell(points(net.more_data.per_year / 100), equal)]
    half = half_life_text(aged.half_life, unit) if net.is_ == "ageing" else ("–", "no ageing is shown")
    return [*cells, Cell(*half)]


def _chance(shown: Sequence[Mapping[str, Any]]) -> str:
    """What a constant answer reaches, in % of the test samples."""
    levels = [r["aged"].chance for r in shown]
    of = "training" if all(r["aged"].chance_by == "training" for r in shown) else "all test"
    low, high = (f"{100 * end:.1f}" for end in (min(levels), max(levels)))
    return f"The most frequent class of the {of} samples reaches {low if low == high else f'{low} to {high}'} %."
