"""Scores from rows: where novel and original accuracy end, and how many corrections it took [OCRR]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from curate.core.errors import BadInput
from eval.rows import Row

TARGETS = (10, 30, 50, 70, 90)  # per cent
NAMED = (50, 70, 90)


def curve(rows: Sequence[Row], where: str) -> tuple[list[int], list[float]]:
    """Corrections and accuracy at every test. Raises BadInput for a test of no samples."""
    mine = [row for row in rows if row.tested_on == where]
    if any(row.n == 0 for row in mine):
        raise BadInput(f"The {where} samples are none.", "Expected at least one.")
    return [row.corrections for row in mine], [row.n_correct / row.n for row in mine]


def corrections_to(rows: Sequence[Row], share: float) -> float | None:
    """Corrections at the first test at which novel accuracy is at least `share`; None: never."""
    for corrections, value in zip(*curve(rows, "novel"), strict=True):
        if value >= share:
            return float(corrections)
    return None


def scored(rows: Sequence[Row]) -> dict[str, Any]:
    """What `walk.score` returns."""
    at, novel = curve(rows, "novel")
    _, original = curve(rows, "original")
    came = [row for row in rows if row.tested_on == "stream"]
    reached = {n: corrections_to(rows, n / 100) for n in TARGETS}
    return {
        "scores": {"novel": novel[-1], "original": original[-1]} | {f"corrections_to_{n}": reached[n] for n in NAMED},
        "matrix": None,
        "measures": {
            "start_novel": novel[0],
            "start_original": original[0],
            "on_the_stream": sum(r.n_correct for r in came) / sum(r.n for r in came),
            "corrections": float(at[-1]),
            **{f"corrections_to_{n}": reached[n] for n in TARGETS if n not in NAMED},
            **_costs(rows),
        },
        "by_class": None,
        "curve": {
            "at": at,
            "value": novel,
            "original": original,
            "seen": [row.seen for row in rows if row.tested_on == "novel"],
            "stored": [row.stored for row in rows if row.tested_on == "novel"],
            "recall": [row.recall for row in rows if row.tested_on == "novel"],
        },
    }


def _costs(rows: Sequence[Row]) -> dict[str, float]:
    """Microseconds of a prediction and of a correction, and the lowest recall of any test."""
    found = {"recall": min(row.recall for row in rows if row.tested_on != "cost")}
    for row in rows:
        if row.tested_on == "cost":
            found["prediction_us"] = 1e6 * row.asking / max(row.n, 1)
            found["correction_us"] = 1e6 * row.correcting / max(row.corrections, 1)
    return found
