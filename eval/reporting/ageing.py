"""How models age, for a report: facts of a document, curves, small multiples, and what a loss comes from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from driftline.eval.plotting.charts import Figure, Section, lines
from driftline.eval.plotting.frames import SHADED
from driftline.eval.plotting.panels import panels
from driftline.eval.reporting import markup
from driftline.eval.reporting.markup import Cell, render
from driftline.eval.reporting.text import counted
from driftline.eval.rows import Run
from driftline.eval.scoring.ageing import Ageing, ageing
from driftline.eval.scoring.bands import Band, mean
from driftline.eval.scoring.cells import Resampling
from driftline.eval.scoring.decay import HalfLife
from driftline.eval.scoring.slices import AFTER, BEFORE, end_of, newer_tests, sides_of, slices
from driftline.eval.scoring.timeline import record
from driftline.stream_builder.stream import Stream

PANELS = 24  # classes with a chart
UNKNOWN = "not known"
EVEN = 0.2  # of an age: ages that differ by no more are named by their mean
Facts = Mapping[str, Any]


def facts_of(runs: Sequence[Run], stream: Stream | None, resampling: Resampling) -> dict[str, Any] | None:
    """How each result of `summary` of the same runs ages, as plain data; None if no learner was tested after its
    training."""
    curves = [
        one if one is None or one.base < len(one.lags) else None for one in ageing(runs, stream, None, resampling)
    ]
    first = next((one for one in curves if one is not None), None)
    if first is None:
        return None
    times = first.timeline
    classes = list(stream.classes) if stream is not None else list(map(str, range(len(first.accuracy_of.value))))
    about = {"unit": times.unit, "names": list(times.names), "dates": list(times.dates), "classes": classes}
    return about | {"results": [None if one is None else _facts(one) for one in curves]}


def seen_of(runs: Sequence[Run], stream: Stream | None, resampling: Resampling) -> dict[str, Any] | None:
    """What the stream's encoder may have seen, which steps are newer, how many training samples are not, which share
    of a test is, and each learner's accuracy on both sides, as plain data; None if the stream does not say."""
    if stream is None or "encoder_cutoff" not in stream.facts:
        return None
    about = {key: str(stream.facts.get(f"encoder_{key}", "unknown")) for key in ("cutoff", "data", "source")}
    end = end_of(about["cutoff"])
    if end is None:
        return about | {"newer": [], "results": []}
    dates, column = record(stream).get("dates", []), sides_of(stream, end)
    sliced = None if column is None else slices(runs, column, stream, resampling=resampling)
    results = []
    if sliced is not None and len(sliced.names) > 1:
        older, newer = (sliced.names.index(side) for side in (BEFORE, AFTER))
        bands = {"before": (sliced.accuracy, older), "after": (sliced.accuracy, newer), "gap": (sliced.gap, older)}
        for k in range(len(sliced.gap.value)):
            parts = {name: (band.value[k], band.low[k], band.high[k], at) for name, (band, at) in bands.items()}
            results.append({
                name: {"value": _plain(value[at]), "low": _plain(low[at]), "high": _plain(high[at])}
                for name, (value, low, high, at) in parts.items()
            })  # fmt: skip
    samples, tests = None, {}
    if column is not None:
        times = [split.time for step in stream.steps if (split := step.splits.get("train")) is not None]
        samples = sum(int((np.asarray(time) < end).sum()) for time in times if time is not None)
        tests = newer_tests(runs, column)
    return about | {"newer": [date >= end for date in dates], "samples": samples, "tests": tests, "results": results}


def seen_section(document: Mapping[str, Any]) -> Section:
    """What the encoder may have seen, and the gap in accuracy between samples that it may have seen and newer ones."""
    about = document["seen"]
    rows = [
        [r["label"], *(Cell(*interval(r["seen"][side])) for side in ("before", "after", "gap"))]
        for r in document["results"]
        if r.get("seen")
    ]
    heads = ["learner", "samples that it may have seen", "newer samples", "gap"]
    newer = set(about["newer"])
    why = "All test samples are " + ("newer" if newer == {True} else "not newer")
    why = why if len(newer) == 1 else "The samples have no dates, or the rows no outcomes"
    values = (about, end_of(about["cutoff"]) is not None, markup.table(heads, rows) if rows else "", why)
    return Section("seen", "What the encoder may have seen", render("seen", *values))


def _facts(one: Ageing) -> dict[str, Any]:
    curve = one.curve
    shown = slice(one.base, one.base + len(curve.age))
    causes = {
        name: _band(getattr(one.causes, name), slice(len(curve.age))) for name in ("drop", "prior", "harder", "older")
    }
    return {
        "age": curve.age.tolist(),
        "youngest": curve.youngest.tolist(),
        "oldest": curve.oldest.tolist(),
        "lag": one.lags[shown].tolist(),
        "tested": curve.tested.tolist(),
        "tests": len(curve.tested),
        "models": curve.models,
        "accuracy": _band(curve.accuracy),
        "by_class": _plain(curve.accuracy_of.value),
        "loss": _band(curve.loss),
        "pairs": curve.pairs,
        "models_in_all": one.models,
        "chance": _plain(mean(np.concatenate([np.diagonal(one.chance, k) for k in one.lags[one.base :].tolist()]), 0)),
        "chance_by": one.chance_by,
        "half_life": _half_life(one.half_life),
        "half_life_by_class": [_half_life(half) for half in one.half_life_of],
        "causes": causes,
        "seeds": len(one.seeds),
        "basis": one.basis,
        "clustered": one.clustered,
    }


def learns_again(facts: Facts) -> bool:
    """Whether a learner's models of several ages differ: else it never learned again, and there is no fresh model to
    compare with."""
    return any(facts["causes"]["older"]["value"])


def _band(band: Band, part: slice = slice(None)) -> dict[str, Any]:
    ends = {"value": band.value, "low": band.low, "high": band.high}
    return {name: _plain(np.asarray(v)[part] if np.ndim(v) else v) for name, v in ends.items()}


def _plain(values: Any) -> Any:
    """Numbers as lists; None in place of NaN and infinity."""
    if np.ndim(values):
        return [_plain(one) for one in np.asarray(values)]
    value = float(values)
    return round(value, 6) if math.isfinite(value) else None


def _half_life(half: HalfLife) -> dict[str, Any]:
    """None without a reason: not reached in the time that was tested."""
    numbers = {name: _plain(getattr(half, name)) for name in ("value", "low", "high", "reached", "tested")}
    return {**numbers, "why": half.why}


def one_of(unit: str) -> str:
    """A unit in the singular.

    >>> one_of("years")
    'year'
    """
    return unit.removesuffix("s")


def span(value: float | None, unit: str) -> str:
    """A time with its unit.

    >>> span(1.04, "years"), span(14.2, "months"), span(None, "steps")
    ('1.0 years', '14 months', 'not reached')
    """
    if value is None:
        return "not reached"
    return f"{value:.0f} {unit}" if value >= 10 else f"{value:.1f} {unit}"


def after(facts: Facts, at: int, unit: str) -> str:
    """The age at a position, with its range where it is of several ages.

    >>> facts = {"age": [1.0, 5.0], "youngest": [1.0, 2.0], "oldest": [1.0, 11.0]}
    >>> after(facts, 0, "years"), after(facts, 1, "years")
    ('1.0 years', '5.0 years (2.0 to 11)')
    """
    mean, least, most = (facts[key][at] for key in ("age", "youngest", "oldest"))
    text = span(mean, unit)
    if most - least <= EVEN * mean:
        return text
    return f"{text} ({span(least, unit).removesuffix(f' {unit}')} to {span(most, unit).removesuffix(f' {unit}')})"


def half_life_parts(half: Facts, unit: str) -> tuple[str, str]:
    """A half-life and its 95 % interval, or why there is none and "". An end that is not reached is one-sided: all that
    is known is that it lies beyond the time that was tested.

    >>> half = {"value": 4.2, "low": 3.9, "high": None, "reached": 0.9, "tested": 14.0, "why": ""}
    >>> half_life_parts({**half, "high": 4.6}, "years"), half_life_parts(half, "years")
    (('4.2 years', '3.9 to 4.6'), ('4.2 years', '3.9 to more than 14'))
    >>> half_life_parts({**half, "value": None}, "years")
    ('not reached within 14 years', '3.9 years or more')
    >>> half_life_parts({**half, "value": None, "low": None}, "years")
    ('not reached within 14 years', 'more than 14 years')
    """
    if half["why"]:
        return str(half["why"]), ""
    tested, low, high = (span(half[key], unit) for key in ("tested", "low", "high"))
    value = f"not reached within {tested}" if half["value"] is None else span(half["value"], unit)
    if half["low"] is None:
        return value, f"more than {tested}"
    if half["high"] is not None:
        return value, f"{low.removesuffix(f' {unit}')} to {high.removesuffix(f' {unit}')}"
    if half["value"] is None:
        return value, f"{low} or more"
    return value, f"{low.removesuffix(f' {unit}')} to more than {tested.removesuffix(f' {unit}')}"


def half_life_text(half: Facts, unit: str) -> str:
    """The same as one text.

    >>> half = {"value": None, "low": None, "high": None, "reached": 0.0, "tested": 29.0, "why": ""}
    >>> half_life_text(half, "years")
    'not reached within 29 years (95 % interval: more than 29 years)'
    """
    value, ends = half_life_parts(half, unit)
    return f"{value} (95 % interval: {ends})" if ends else value


def _drawn(half: Facts) -> str:
    """In which share of the replicates a half-life is reached, where that is not in all or none.

    >>> _drawn({"reached": 0.256}), _drawn({"reached": 0.001}), _drawn({"reached": 1.0})
    ('reached in 26 % of the replicates', 'reached in less than 1 % of the replicates', '')
    """
    share = 100 * half["reached"]
    if not 0 < share < 100:
        return ""
    text = "less than 1" if share < 1 else "more than 99" if share > 99 else f"{share:.0f}"
    return f"reached in {text} % of the replicates"


def points(value: float | None, signed: bool = False) -> str:
    """A share in points, with a minus sign that is as wide as a plus.

    >>> points(-0.0123), points(0.5, signed=True)
    ('−1.2', '+50.0')
    """
    if value is None:
        return "–"
    rounded = round(100 * value, 1) + 0.0  # no negative zero
    return f"{rounded:{'+' if signed else ''}.1f}".replace("-", "−")


def interval(band: Facts, at: int | None = None) -> tuple[str, str]:
    """A value in points, and its interval or ""."""
    value, low, high = (band[end] if at is None else band[end][at] for end in ("value", "low", "high"))
    return points(value), "" if low is None else f"{points(low)} to {points(high)}"


def curves(document: Mapping[str, Any]) -> Figure | None:
    """Accuracy over age, a line for each learner; None without at least two ages."""
    about, shown = document["ageing"], _seeing(document)
    if not any(len(facts["age"]) > 1 for _, facts in shown):
        return None
    unit = about["unit"]
    series = {name: _known(facts["age"], facts["accuracy"]["value"]) for name, facts in shown}
    bands = {
        name: (_known(facts["age"], facts["accuracy"]["low"])[1], _known(facts["age"], facts["accuracy"]["high"])[1])
        for name, facts in shown
    }
    bands = {name: ends for name, ends in bands.items() if all(len(end) == len(series[name][0]) for end in ends)}
    loose = [name for name, facts in shown if _single(facts)]  # a line through one test each is no trend
    picture = lines(series, f"{unit} from training to test", bands=bands, from_zero=False, loose=loose)
    return Figure(f"Accuracy by age, {document['stream']['name']}", _curve_note(document), picture)


def _curve_note(document: Mapping[str, Any]) -> str:
    about, shown, facts = document["ageing"], _seeing(document), _typical(document)
    text = f"All points of a line are means over the same {counted(facts['tests'], 'test')}: with models of all ages."
    if _single(facts):
        text = "Dots without a line: each is one test, the same for all ages." if facts["tests"] else ""
    text += " Older models have fewer tests; their accuracies are in the matrices." * (len(facts["age"]) > 1)
    later = [f"{name} ({counted(one['models'], 'model')})" for name, one in shown if one["models"]]
    if later:
        text += f" No fresh models to compare with, and so the same models on later tests: {', '.join(later)}."
    same = [name for name, one in shown if not learns_again(one) and not one["models"]]
    if same and len(facts["age"]) > 1:
        text += f" Flat, since they never learn again and have the same answers at every age: {', '.join(same)}."
    text += _uneven(facts, about["unit"])
    if about["unit"] == "steps":
        text += " The stream has no usable dates: ages are in steps."
    drawn = "seeds and test samples" if facts["seeds"] > 1 else "test samples (1 seed)"
    text += f" Shaded{' (of the line under the pointer)' if len(shown) > SHADED else ''}: 95 % interval over {drawn}"
    text += ", samples of one uploader or near-copy group drawn together." if facts["clustered"] else "."
    if facts["basis"] == "counts":
        text += " The intervals are approximate: these rows have no outcomes."
    left_out = [name for name, facts in _shown(document) if (name, facts) not in shown]
    if left_out:
        text += f" Not drawn, since they see no sample: {', '.join(left_out)}."
    return text + _newer_note(document)


def _single(facts: Facts) -> bool:
    """Whether each age has one test only."""
    return max(facts["tests"], facts["models"]) == 1


def _typical(document: Mapping[str, Any]) -> Facts:
    """Facts of the first learner whose ages share their tests; of the first one if there is none."""
    shown = [facts for _, facts in _seeing(document)]
    return next((facts for facts in shown if facts["tests"]), shown[0])


def _uneven(facts: Facts, unit: str) -> str:
    """The range of ages at each point, where steps are so unevenly apart that a mean misleads."""
    ranges = [after(facts, at, unit) for at in range(len(facts["age"]))]
    named = [text for text in ranges if text.endswith(")")]
    return f" Steps are unevenly apart, and ages are means: {', '.join(named)}." if named else ""


def _newer(document: Mapping[str, Any]) -> list[bool]:
    """Which of the shared tests are newer than what the encoder may have seen; [] if it is not known."""
    newer = (document.get("seen") or {}).get("newer", ())
    return [bool(newer[step]) for step in _typical(document)["tested"]] if newer else []


def _newer_note(document: Mapping[str, Any]) -> str:
    newer = _newer(document)
    which = "All" if all(newer) else f"{sum(newer)} of {len(newer)}"
    return f" † {which} of these tests are newer than what the encoder may have seen." if any(newer) else ""


def _shown(document: Mapping[str, Any]) -> list[tuple[str, Facts]]:
    """Labels of learners with facts, in the document's order."""
    return [(r["label"], r["ageing"]) for r in document["results"] if r.get("ageing")]


def _seeing(document: Mapping[str, Any]) -> list[tuple[str, Facts]]:
    """The same without learners that never look at a sample, if there are others: their level would flatten the
    curves."""
    sighted = [r for r in document["results"] if r.get("standing") != "blind"]
    return _shown({"results": sighted}) or _shown(document)


def _known(x: Sequence[float], y: Sequence[float | None]) -> tuple[list[float], list[float]]:
    pairs = [(a, b) for a, b in zip(x, y, strict=True) if b is not None]
    return [a for a, _ in pairs], [b for _, b in pairs]


def by_class(document: Mapping[str, Any]) -> Figure | None:
    """Small multiples: a chart for each class, the class that loses most first; None without counts of classes."""
    about, shown = document["ageing"], _seeing(document)
    classes = about["classes"]
    falls: dict[int, float] = {}
    for _, facts in shown:
        for c, values in enumerate(facts["by_class"]):
            numbers = [value for value in values if value is not None]
            if len(numbers) > 1:
                falls[c] = max(falls.get(c, -math.inf), numbers[0] - numbers[-1])
    order = sorted(falls, key=lambda c: -falls[c])[:PANELS]
    if len(order) < 2:
        return None
    charts = {
        classes[c] if c < len(classes) else str(c): {
            name: _known(facts["age"], facts["by_class"][c]) for name, facts in shown if c < len(facts["by_class"])
        }
        for c in order
    }
    left_out = f" {PANELS} of {len(falls)} classes." if len(falls) > PANELS else ""
    note = f"The class that loses most is first.{left_out} {about['unit'].capitalize()} from training to test."
    picture = panels(charts, about["unit"], joined=not _single(_typical(document)))
    return Figure("Who loses: accuracy of each class", note + _newer_note(document), picture)


def table(document: Mapping[str, Any]) -> Section | None:
    """How fast each learner loses accuracy, and why."""
    unit, shown = document["ageing"]["unit"], _shown(document)
    if not shown:
        return None
    rows, first = [], _typical(document)
    last = len(first["age"]) - 1
    for name, facts in shown:
        accuracy, causes = facts["accuracy"], facts["causes"]
        at = max(sum(lag <= first["lag"][-1] for lag in facts["lag"]) - 1, 0)
        values = [interval(accuracy, 0), interval(accuracy, at)]
        again = learns_again(facts)
        parts = ("older", "harder", "prior")
        values += [interval(causes[cause], at) if again else (UNKNOWN, "never learns again") for cause in parts[:2]]
        values += [
            interval(one, k) if again else (UNKNOWN, "") for one, k in ((causes["prior"], at), (facts["loss"], None))
        ]
        half, ends = half_life_parts(facts["half_life"], unit)
        drawn = _drawn(facts["half_life"])
        values.append((half, Markup("{};<br>{}").format(ends, drawn) if drawn else ends))
        rows.append([name, *(Cell(*value) for value in values)])
    fresh = "fresh" if first["age"][0] == 0 else f"after {after(first, 0, unit)}"
    old = f"after {after(first, last, unit)}"
    newer = _newer(document)
    fresh, dated = (f"{head} †" if newer and all(newer) else head for head in (fresh, old))
    heads = ["learner", fresh, dated, "lost: model is old", "lost: data got harder", "lost: other classes",
             f"lost a {one_of(unit)}: model is old", "half-life"]  # fmt: skip
    note = (
        "Accuracy in per cent, losses in points, with 95 % intervals. Both accuracies are means over the same "
        f"{counted(first['tests'], 'test')}. Lost a {one_of(unit)}: how far models fall behind fresh ones on the same "
        f"test, by least squares over {counted(first['pairs'], 'pair')}. Half-life: time until half of the accuracy "
        "above chance is gone; it follows the same models over later tests, which may be harder, and says nothing of "
        "times beyond those that were tested. "
        f"Age counts from the last step at which a model changed. {chance_note([facts for _, facts in shown])} "
        f"What the same models lose {old} has three parts: fresh models do better on the same tests "
        "(model is old), fresh models fail there (data got harder), and the tests have other shares of the classes."
    ) + _newer_note(document)
    return Section("ageing-table", "How fast, and why", markup.table(heads, rows) + render("soft", note))


def chance_note(shown: Sequence[Mapping[str, Any]]) -> str:
    """What chance is, in per cent over the tests."""
    if not (values := [facts["chance"] for facts in shown if facts["chance"] is not None]):
        return ""
    low, high = (f"{100 * end:.1f}" for end in (min(values), max(values)))
    of = "training" if all(facts["chance_by"] == "training" for facts in shown) else "all test"
    part = low if low == high else f"{low} to {high}"
    return f"Chance, {part} %, is the answer that is always the most frequent class of the {of} samples."
