"""Recovery over corrections, what is forgotten meanwhile, and what storage buys."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from eval.plotting.charts import Figure, Section, lines, points
from eval.protocol import Document
from eval.protocols.ocrr.score import SCORES
from eval.scoring.aggregate import labels


def figures(document: Document) -> list[Figure]:
    """Recovery, forgetting, and accuracy over storage."""
    results = document["results"]
    by_name = dict(zip(labels(results), results, strict=True))
    places = {name: (float(r["stored_bytes"]), _both(r)) for name, r in by_name.items()}

    def over_corrections(title: str, tested_on: str, key: str) -> Figure:
        series = {name: (r["curve"]["at"], r["curve"][key]) for name, r in by_name.items()}
        return Figure(title, f"Accuracy on {tested_on} samples, over corrections given.", lines(series, "corrections"))

    storage = (
        "Mean of final novel and original accuracy over bytes kept. Blue, with a dot in the list: no other learner "
        "is as small and as good."
    )
    return [
        over_corrections("Recovery", "novel", "value"),
        over_corrections("Retention during recovery", "original", "original"),
        Figure("Accuracy over storage", storage, points(places, front(places), "bytes kept")),
    ]


def front(places: Mapping[str, tuple[float, float]]) -> list[str]:
    """The Pareto front: names for which no other is at least as small and as good, and smaller or better.

    >>> front({"a": (1.0, 0.5), "b": (2.0, 0.9), "c": (2.0, 0.4)})
    ['a', 'b']
    """

    def beaten(x: float, y: float) -> bool:
        return any(p <= x and q >= y and (p < x or q > y) for p, q in places.values())

    return [name for name, place in places.items() if not beaten(*place)]


def _both(result: Mapping[str, Any]) -> float:
    scores = result["scores"]
    return float(scores["novel"]["mean"] + scores["original"]["mean"]) / 2


def note(document: Document) -> str:
    """How the stream was split, and which errors were corrected."""
    settings = document["results"][0]["settings"]
    policies = sorted({r["settings"]["policy"] for r in document["results"]})
    return (
        f"Policy: {', '.join(policies)}. Scenario: {settings['scenario']}; {settings['held_out']} classes are held out "
        "in the scenario categorical. Corrections to N %: at the first test with that novel accuracy, mean over the "
        "seeds that reached it; a dash: no seed did."
    )


def across(documents: Sequence[Document]) -> Section | None:
    """Final novel and original accuracy: a row for each learner, a column for each stream (or encoder) and policy; None
    for a single column."""
    columns: dict[tuple[str, str], dict[str, Any]] = {}
    for document in documents:
        for result in document["results"]:
            key = (document["stream"]["name"], result["settings"]["policy"])
            columns.setdefault(key, {}).setdefault(result["learner"], result)
    if len(columns) < 2:
        return None
    names = list(dict.fromkeys(name for column in columns.values() for name in column))
    head = "".join(f"<th scope='col'>{html.escape(stream)}<br>{html.escape(policy)}</th>" for stream, policy in columns)
    rows = []
    for name in names:
        cells = [f"<td>{_pair(column[name]) if name in column else '–'}</td>" for column in columns.values()]
        rows.append(f"<tr><th scope='row'>{html.escape(name)}</th>{''.join(cells)}</tr>")
    return Section(
        "across-ocrr",
        "Policies and data",
        "<p class='soft'>Final novel accuracy; below it, original accuracy. Per cent, over seeds.</p>"
        f"<div class='scroll'><table class='scores'><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}"
        "</tbody></table></div>",
    )


def _pair(result: Mapping[str, Any]) -> str:
    novel, original = (score.spread(result) for score in SCORES[:2])
    return f"{novel}<br><span class='sd'>{original}</span>"
