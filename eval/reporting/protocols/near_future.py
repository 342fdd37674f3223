"""The paper's figures: the reversal, the blind curve, running accuracy, retention, samplers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from driftline.eval.plotting.charts import Figure, lines, slopes
from driftline.eval.protocol import Document
from driftline.eval.reporting.protocols import Page
from driftline.eval.scoring.slices import MARK, since

NEWER = " † From here on, what comes is newer than what the encoder may have seen."
SHIFT = "shift_"  # how the names of measures at further shifts begin
SHOWN_KS = (1, 10, 100, 1000)  # windows of the blind curve, beside the best


def note(document: Document) -> str:
    """S, the batch size, chance, equal times, and which learners overspent their budget."""
    first = document["results"][0]
    shift, notes = first["settings"]["shift"], first.get("told", {})
    chance = notes["blind"]["chance"] if "blind" in notes else None
    text = f"S = {shift} samples, batches of {first['settings']['batch']}."
    if chance is not None:
        text += f" Chance is {100 * chance:.1f} %: the blind classifier on the same labels in random order."
    over, under = (
        [f"{r['label']} ({r['budget'][key]} ×)" for r in document["results"] if key in r.get("budget", {})]
        for key in ("overspent", "underspent")
    )
    further = [
        f"{lost:,} labels come after the last sample, or never." if (lost := notes.get("labels_not_shown")) else "",
        f"Took more than the budget: {', '.join(over)}." if over else "",
        f"Took less than nine tenths of the budget: {', '.join(under)}." if under else "",
    ]
    return " ".join(filter(None, [text, notes.get("ties_text", ""), notes.get("warning", ""), *further]))


def varies(document: Document) -> str:
    """What differs between seeds."""
    return "Initial weights and what samplers draw. The stream, its order and its tests are the same for every seed."


def figures(document: Document) -> list[Figure]:
    """The figures for which the results have the data."""
    results = document["results"]
    crossing = (
        "Where lines cross, the ranking changes: the best learner on the next sample may have learned nothing that "
        "lasts [near-future accuracy, figure 1]."
    )
    kept = "After each period, accuracy on all held-out samples of the periods so far; the end is the score."
    shift = int(results[0]["settings"]["shift"])
    pairs = slopes({r["label"]: _pair(r) for r in results}, "online", "near future")
    seen = document.get("seen") or {}
    periods = since(seen.get("newer", ()), range(len(results[0]["matrix"])))
    series = {r["label"]: (r["curve"]["period"], r["curve"]["retention"]) for r in results}
    retained = lines(series, "period", marks=periods, dates=dict(enumerate(document["names"])))
    starts = dict(zip([0, *document["ends"]], document["names"], strict=False)) if document["ends"] else {}

    def along(title: str, caption: str, at: str, value: str, ahead: int) -> Figure:
        series = {r["label"]: (r["curve"][at], r["curve"][value]) for r in results}
        marks = _first_newer(seen.get("samples"), ahead, [x for xs, _ in series.values() for x in xs])
        chart = lines(series, f"samples seen{', at the start of each step' * bool(starts)}", marks=marks, dates=starts)
        return Figure(f"{title} along the stream", caption + NEWER * bool(marks), chart)

    charts = [
        Figure("Online against near-future accuracy", crossing, pairs),
        along("Near-future accuracy", "Mean over all samples tested so far.", "at", "value", shift),
        along("Online accuracy", "The same without a gap: label correlation included.", "online_at", "online", 0),
        Figure("Retention", kept + NEWER * bool(periods), retained),
    ]
    if blind := results[0].get("told", {}).get("blind"):
        charts.insert(1, _blind(blind, shift))
    return charts + _samplers(results) + _over_shifts(results)


def _first_newer(samples: int | None, ahead: int, along: Sequence[int]) -> dict[str, float]:
    """The mark where tests `ahead` samples later are newer than what the encoder may have seen: after `samples`."""
    if samples is None or not along or samples - ahead >= max(along):
        return {}
    return {MARK: max(samples - ahead, min(along))}


def _pair(result: Mapping[str, Any]) -> tuple[float, float]:
    return result["scores"]["online"]["mean"], result["scores"]["near_future"]["mean"]


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
    return [Figure("Samplers", caption, slopes(pairs, "near future", "retention"))]


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
    return [Figure("Accuracy over shifts", "How far ahead each learner is still accurate.", chart)]


class NearFuture(Page):
    """Of near-future."""

    measures_title = "Accuracy at further shifts, and how sure the differences are"
    matrix_title = "Retention by period"
    matrix_note = "Row: after this period. Column: tested on this period's held-out samples."
    figures, note, varies = staticmethod(figures), staticmethod(note), staticmethod(varies)
