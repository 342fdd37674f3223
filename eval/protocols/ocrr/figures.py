"""Recovery over corrections, what is forgotten meanwhile, and what storage buys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eval.figures import Figure, lines, points
from eval.summary import labels

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
