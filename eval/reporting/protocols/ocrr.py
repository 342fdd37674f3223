"""Recovery over corrections, what is forgotten meanwhile, and what storage buys."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from driftline.eval.plotting.charts import Figure, Section, front, lines, scatter
from driftline.eval.protocol import Document
from driftline.eval.protocols.ocrr.protocol import SCORES
from driftline.eval.reporting.markup import Cell, render, table
from driftline.eval.reporting.protocols import Lead, Page, lead_of
from driftline.eval.reporting.text import spread
from driftline.eval.scoring.ranking import comparable, differing, labels, mean_of, references

ENDED = " Means over seeds; a run that has ended keeps its last accuracy, so that a line ends at its score."


def lead(document: Document) -> Lead | None:
    """Who is above one answer for all samples."""
    blind = [mean_of(SCORES[2], r) or 0.0 for r in document["results"] if r.get("standing") == "blind"]
    if not (known := [*references(document["results"]).values(), *blind]):
        return None
    what = "of the new samples or of the original ones, whichever share is lower"
    return lead_of(document, {"one answer for all samples": max(known)}, "a constant answer", what)


def first_figure(document: Document) -> Figure:
    """What recovery costs: final novel and original accuracy."""
    places = {
        r["label"]: (r["scores"]["novel"]["mean"], r["scores"]["original"]["mean"], float(r["stored_bytes"]))
        for r in document["results"]
    }
    caption = (
        "Mean over seeds. Blue, joined by a line: no other learner is as good on both and better on one. The larger a "
        "dot, the more bytes are kept (logarithmic)."
    )
    picture = scatter(places, front({n: place[:2] for n, place in places.items()}), "novel", "original", "bytes kept")
    return Figure("New against original classes", caption, picture)


def figures(document: Document) -> list[Figure]:
    """Recovery and forgetting; recall, if a search was by an index."""
    results = document["results"]
    by_index = {r["label"]: (r["curve"]["at"], r["curve"]["recall"]) for r in results if min(r["curve"]["recall"]) < 1}
    note = "Share of the nearest samples of each test that the index finds (OCRR's verify_hnsw_recall)."
    recall = [Figure("Recall of the index", note, lines(by_index, "corrections"))] if by_index else []

    def over_corrections(title: str, tested_on: str, key: str) -> Figure:
        series = {r["label"]: (r["curve"]["at"], r["curve"][key]) for r in results}
        caption = f"Accuracy on {tested_on} samples, over corrections given."
        caption += ENDED * any(len(r["seeds"]) > 1 for r in results)
        return Figure(title, caption, lines(series, "corrections"))

    return [
        over_corrections("Recovery", "novel", "value"),
        over_corrections("Retention during recovery", "original", "original"),
        *recall,
    ]


def note(document: Document) -> str:
    """How the stream was split, and which errors were corrected."""
    settings = document["results"][0]["settings"]
    policies = sorted({r["settings"]["policy"] for r in document["results"]})
    return (
        f"Policy: {', '.join(policies)}. Scenario: {settings['scenario']} (categorical: "
        f"{settings['held_out']} held-out classes). Corrections to N %: at the first test with that novel accuracy, "
        "mean over the seeds that reached it; a dash: no seed did, or it was there at the start."
    )


VARIES = {
    "categorical": "the held-out classes, and with them the stream and the test samples",
    "auto": "for a stream of one step the held-out classes; for several steps the novel samples and their order stay",
    "temporal": "the novel samples and their order stay the same for every seed",
}


def varies(document: Document) -> str:
    """What differs between seeds: which samples are novel is drawn only if classes are held out."""
    stays = "which samples are novel stays the same for every seed"
    scenarios = dict.fromkeys(str(r["settings"].get("scenario", "auto")) for r in document["results"])
    texts = [f"Scenario {name}: {VARIES.get(name, stays)}." for name in scenarios]
    return " ".join([*texts, "Always: the order of the seed data, which test samples are used, initial weights."])


def across(documents: Sequence[Document]) -> Section | None:
    """Final novel and original accuracy: a row for each learner, a column for each stream (or encoder) and settings of
    the protocol; None for a single column."""
    columns: list[tuple[Markup, dict[str, Any]]] = []
    for document in documents:
        for group, settings in zip(comparable(document), differing(document), strict=True):
            settings = settings or f"policy={group[0]['settings']['policy']}"
            head = Markup("{}<br>{}").format(document["stream"]["name"], settings)
            columns.append((head, dict(zip(labels(group), group, strict=True))))
    if len(columns) < 2:
        return None
    names = list(dict.fromkeys(name for _, column in columns for name in column))
    rows = [[name, *(_pair(column[name]) if name in column else "–" for _, column in columns)] for name in names]
    note = render("soft", "Final novel accuracy; below it, original accuracy (%, over seeds).")
    return Section("across-ocrr", "Policies and data", note + table(["", *(head for head, _ in columns)], rows))


def _pair(result: Mapping[str, Any]) -> Cell:
    novel, original = (spread(score, result) for score in SCORES[:2])
    return Cell(novel, below=original)


PAGE = Page(
    measures_title="Accuracy at the start and costs, and how sure the differences are",
    lead=lead, first=first_figure, figures=figures, note=note, varies=varies, across=across,
)  # fmt: skip
