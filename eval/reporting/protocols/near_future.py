"""The paper's figures: the reversal, the blind curve, running accuracy, retention, samplers."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from driftline.eval.plotting.charts import Figure, lines, slopes
from driftline.eval.protocol import MAJORITY, Document, primary_of
from driftline.eval.reporting.protocols import Lead, Page, lead_of
from driftline.eval.scoring.ranking import mean_of

SHIFT = "shift_"  # how the names of measures at further shifts begin
SHOWN_KS = (1, 10, 100, 1000)  # windows of the blind curve, beside the best


def blind_at(result: Mapping[str, Any]) -> tuple[float, float, float] | None:
    """Accuracy of labels alone: the next one, S samples ahead, and in random order."""
    if (curve := result.get("told", {}).get("blind")) is None:
        return None
    at = sum(s <= int(result["settings"]["shift"]) for s in curve["shifts"]) - 1
    return curve["best"][0], curve["best"][at], curve["chance"]


def lead(document: Document) -> Lead | None:
    """Who is above labels alone, chance and a constant answer."""
    results, score = document["results"], primary_of(document)
    if (alone := blind_at(results[0])) is None:
        return None
    blind = [alone[1], *(mean_of(score, r) or 0.0 for r in results if r["learner"].partition("(")[0] == "blind")]
    references = {"blind": max(blind), "chance": alone[2]}
    constant = [r["references"][MAJORITY] for r in results if MAJORITY in r.get("references", {})]
    references |= {"the most frequent class": max(constant)} if constant else {}
    ahead = results[0]["settings"]["shift"]
    what = f"of the samples {ahead} later" if ahead else "of the next samples"
    return lead_of(document, references, "labels alone", what)


def first_figure(document: Document) -> Figure:
    """Online against near-future accuracy and retention, with labels alone."""
    results, columns = document["results"], ("online", "near_future", "retention")
    series = {r["label"]: [v for c in columns if (v := r["scores"][c]["mean"]) is not None] for r in results}
    alone = blind_at(results[0])
    if alone is not None and not any(r["learner"].partition("(")[0] == "blind" for r in results):
        series |= {"labels alone": list(alone[:2])}
    caption = "Where lines cross, the ranking changes: the best online may learn nothing that lasts [paper, figure 1]."
    levels = {} if alone is None else {"chance": alone[2]}
    picture = slopes(series, ("online", "near future", "retention"), levels)
    return Figure("Online, near-future and retention", caption, picture)


def note(document: Document) -> str:
    """What labels alone are worth at S, the batch size, equal times, and which learners overspent their budget."""
    first = document["results"][0]
    notes = first.get("told", {})
    text = f"{notes.get('shift_text', '')} Batches of {first['settings']['batch']}.".strip()
    over, under = (
        [f"{r['label']} ({r['budget'][key]} ×)" for r in document["results"] if key in r.get("budget", {})]
        for key in ("overspent", "underspent")
    )
    further = [
        f"{lost:,} labels come after the last sample, or never." if (lost := notes.get("labels_not_shown")) else "",
        f"Took more than the budget: {', '.join(over)}." if over else "",
        f"Took less than nine tenths of the budget: {', '.join(under)}." if under else "",
    ]
    return " ".join(filter(None, [text, notes.get("warning", ""), notes.get("ties_text", ""), *further]))


def varies(document: Document) -> str:
    """What differs between seeds."""
    return "Initial weights, and the samples that samplers choose; not the stream, its order or its test samples."


def figures(document: Document) -> list[Figure]:
    """The figures for which the results have the data."""
    results = document["results"]
    note = (
        "The last model, on all held-out samples up to each period [near-future accuracy, figure 4]; the end is the "
        "score. A line that rises to the right shows that the model forgot old samples."
    )
    shift = int(results[0]["settings"]["shift"])
    series = {r["label"]: (r["curve"]["period"], r["curve"]["retention"]) for r in results}
    retained = lines(series, "period", dates=dict(enumerate(document["names"])))
    starts = dict(zip([0, *document["ends"]], document["names"], strict=False)) if document["ends"] else {}

    def along(title: str, caption: str, at: str, value: str) -> Figure:
        series = {r["label"]: (r["curve"][at], r["curve"][value]) for r in results}
        chart = lines(series, f"samples seen{', at the start of each step' * bool(starts)}", dates=starts)
        return Figure(f"{title} along the stream", caption, chart)

    charts = [
        along("Near-future accuracy", "Mean over all samples tested so far.", "at", "value"),
        along("Online accuracy", "The same for the next samples, S = 0.", "online_at", "online"),
        Figure("Retention", note, retained),
    ]
    if blind := results[0].get("told", {}).get("blind"):
        charts.insert(0, _blind(blind, shift))
    return charts + _samplers(results) + _over_shifts(results)


def _blind(blind: Mapping[str, Any], shift: int) -> Figure:
    shifts, accuracy = blind["shifts"], np.array(blind["accuracy"])
    series = {"best k": (shifts, blind["best"])}
    series |= {f"k = {k}": (shifts, accuracy[:, j].tolist()) for j, k in enumerate(blind["ks"]) if k in SHOWN_KS}
    low, high = (np.array(blind["best"]) + sign * np.array(blind["half_width"]) for sign in (-1, 1))
    return Figure(
        "The blind classifier",
        f"Accuracy of the most frequent of the last k labels, S samples later; no sample is looked at. Shaded: 95 % "
        f"interval of the best k. Ties: the newest label. Best k from S = {shifts[0]} on: "
        f"{', '.join(map(str, blind['best_k']))} [near-future accuracy, figure 2].",
        lines(
            series, "S, samples", log=True, levels={"chance": blind["chance"]}, marks={f"S = {shift}": shift},
            bands={"best k": (low.tolist(), high.tolist())},
        ),
    )  # fmt: skip


def _samplers(results: Any) -> list[Figure]:
    """Near-future accuracy against retention, for every learner that ran with several samplers."""
    names = [(r["learner"].partition("(")[0], r["settings"]["sampler"]) for r in results if "sampler" in r["settings"]]
    several = {name for name, _ in names if len({sampler for other, sampler in names if other == name}) > 1}
    pairs = {
        r["label"]: (r["scores"]["near_future"]["mean"], r["scores"]["retention"]["mean"])
        for r in results if "sampler" in r["settings"] and r["learner"].partition("(")[0] in several
    }  # fmt: skip
    if not pairs:
        return []
    caption = "The same learner with other samples of the past [near-future accuracy, section 5]."
    return [Figure("Samplers", caption, slopes(pairs, ("near future", "retention")))]


def _over_shifts(results: Any) -> list[Figure]:
    """Accuracy over all shifts that were scored, if there are more than two."""
    also = [name for name in results[0]["measures"] if name.startswith(SHIFT)]
    if not also:
        return []
    series = {}
    for r in results:
        points = {0: r["scores"]["online"]["mean"], int(r["settings"]["shift"]): r["scores"]["near_future"]["mean"]}
        points |= {int(name.removeprefix(SHIFT)): r["measures"][name]["mean"] for name in also}
        series[r["label"]] = ([float(s) for s in sorted(points)], [points[s] for s in sorted(points)])
    chart = lines(series, "S, samples", log=True)
    return [Figure("Accuracy over lookaheads", "How far ahead each learner is still accurate.", chart)]


PAGE = Page(
    measures_title="Accuracy at other lookaheads S, and how sure the differences are",
    matrix_title="Retention by period",
    matrix_note="Row: after this period. Column: tested on this period's held-out samples.",
    ages=False, lead=lead, first=first_figure, figures=figures, note=note, varies=varies,
)  # fmt: skip
