"""Recovery over corrections, what is forgotten meanwhile, and what storage buys."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from eval.plotting.charts import Figure, lines, points
from eval.scoring.aggregate import labels

Document = Mapping[str, Any]


def figures(document: Document) -> list[Figure]:
    """Those that the results have the rows for."""
    results = document["results"]
    names = {id(r): shown for r, shown in zip(results, labels(results), strict=True)}
    places = {names[id(r)]: (float(r["stored_bytes"]), _both(r)) for r in results}
    return [
        Figure(
            "Recovery",
            "Accuracy on what is novel, over corrections given.",
            lines({names[id(r)]: (r["curve"]["at"], r["curve"]["value"]) for r in results}, "corrections"),
        ),
        Figure(
            "What is kept meanwhile",
            "Accuracy on what was known, over corrections given.",
            lines({names[id(r)]: (r["curve"]["at"], r["curve"]["original"]) for r in results}, "corrections"),
        ),
        Figure(
            "What storage buys",
            "Mean of final novel and original accuracy over bytes kept. Blue, with a dot in the list: no other is "
            "as small and as good; the front is computed from these rows.",
            points(places, front(places), "bytes kept"),
        ),
    ]


def front(places: Mapping[str, tuple[float, float]]) -> list[str]:
    """Names that no other beats: none is as small and as good, and smaller or better.

    >>> front({"a": (1.0, 0.5), "b": (2.0, 0.9), "c": (2.0, 0.4)})
    ['a', 'b']
    """
    return [
        name
        for name, (x, y) in places.items()
        if not any(p <= x and q >= y and (p < x or q > y) for p, q in places.values())
    ]


def _both(result: Mapping[str, Any]) -> float:
    scores = result["scores"]
    return float(scores["novel"]["mean"] + scores["original"]["mean"]) / 2


def note(document: Document) -> str:
    """How the stream was cut, and who corrected."""
    settings = document["results"][0]["settings"]
    policies = sorted({r["settings"]["policy"] for r in document["results"]})
    return (
        f"Policy: {', '.join(policies)}. Scenario: {settings['scenario']}; {settings['held_out']} classes are held out "
        "where it holds classes out. Corrections to N %: at the first test with that novel accuracy, mean over the "
        "seeds that reached it; a dash: none did."
    )


def across(documents: Sequence[Document]) -> str:
    """Policy × data: a row a learner, a column a stream (or encoder) and policy; final novel and original accuracy. An
    HTML table, empty where there is only one column."""
    columns: dict[tuple[str, str], dict[str, Any]] = {}
    for document in documents:
        for result in document["results"]:
            key = (document["stream"]["name"], result["settings"]["policy"])
            columns.setdefault(key, {}).setdefault(result["learner"], result["scores"])
    if len(columns) < 2:
        return ""
    names = list(dict.fromkeys(name for of in columns.values() for name in of))
    head = "".join(f"<th scope='col'>{html.escape(stream)}<br>{html.escape(policy)}</th>" for stream, policy in columns)
    rows = []
    for name in names:
        cells = [f"<td>{_pair(of[name]) if name in of else '–'}</td>" for of in columns.values()]
        rows.append(f"<tr><th scope='row'>{html.escape(name)}</th>{''.join(cells)}</tr>")
    return f"<table class='scores'><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _pair(scores: Mapping[str, Any]) -> str:
    told = [f"{100 * scores[name]['mean']:.1f} ± {100 * scores[name]['sd']:.1f}" for name in ("novel", "original")]
    return f"{told[0]}<br><span class='sd'>{told[1]}</span>"
