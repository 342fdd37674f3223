"""Scores from rows: where novel and original accuracy end, and how many corrections it took [OCRR]."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadInput
from driftline.eval.protocol import Result, Score, shares
from driftline.eval.rows import Row

Floats = npt.NDArray[np.float64]
TARGETS = (10, 30, 50, 70, 90)  # per cent
NAMED = (50, 70, 90)  # among the scores; the others are measures
REACHED = {n: Score(f"corrections_to_{n}", f"corrections to {n} %", False, "corrections") for n in TARGETS}
SCORES = (
    Score("novel", "novel"),
    Score("original", "original"),
    Score("worst", "worst of novel, original"),
    *(REACHED[n] for n in NAMED),
)
MEASURES = (
    Score("start_novel", "novel at the start"),
    Score("start_original", "original at the start"),
    Score("on_the_stream", "right on the stream"),
    Score("corrections", "corrections", False, "corrections"),
    *(REACHED[n] for n in TARGETS if n not in NAMED),
    Score("recall", "recall of the search"),
    Score("prediction_us", "µs a prediction", False, "microseconds"),
    Score("correction_us", "µs a correction", False, "microseconds"),
)


def curve(rows: Sequence[Row], tested_on: str) -> tuple[list[int], list[float]]:
    """Corrections and accuracy at every test. Raises BadInput for a test of no samples."""
    tests = [row for row in rows if row.tested_on == tested_on]
    if any(row.n == 0 for row in tests):
        raise BadInput(f"A {tested_on} test has no samples.", "Expected at least one.")
    return [row.corrections for row in tests], [row.n_correct / row.n for row in tests]


def corrections_to(rows: Sequence[Row], share: float) -> float | None:
    """Corrections at the first test at which novel accuracy is at least `share`; None: never, or before the first
    correction, which measures no recovery."""
    reached = [given for given, value in zip(*curve(rows, "novel"), strict=True) if value >= share]
    return float(reached[0]) if reached and reached[0] else None


def decisive(rows: Sequence[Row]) -> list[Row]:
    """The last tests, novel and original."""
    return [next(row for row in reversed(rows) if row.tested_on == name) for name in ("novel", "original")]


def score_of_counts(right: Floats, n: Floats) -> Floats:
    """worst: right answers and samples (..., 2) → the lower accuracy (...); of a test without samples, the other's."""
    return np.asarray(np.fmin.reduce(shares(right, n), -1))


def scored(rows: Sequence[Row]) -> Result:
    """Final accuracies, the lower of both, corrections to N %; accuracies at the start, costs; the curve."""
    at, novel = curve(rows, "novel")
    _, original = curve(rows, "original")
    on_stream = [row for row in rows if row.tested_on == "stream"]
    tests = [row for row in rows if row.tested_on == "novel"]
    reached = {n: corrections_to(rows, n / 100) for n in TARGETS}
    scores: dict[str, float | None] = {
        "novel": novel[-1],
        "original": original[-1],
        "worst": min(novel[-1], original[-1]),
    }
    scores |= {REACHED[n].name: reached[n] for n in NAMED}
    right = sum(row.n_correct for row in on_stream) / sum(row.n for row in on_stream)
    measures = {"start_novel": novel[0], "start_original": original[0], "on_the_stream": right}
    measures["corrections"] = float(at[-1])
    others = {REACHED[n].name: reached[n] for n in TARGETS if n not in NAMED}
    kept = {key: [getattr(row, key) for row in tests] for key in ("seen", "stored", "recall")}
    over_corrections: dict[str, Sequence[float]] = {"at": at, "value": novel, "original": original, **kept}
    return Result(scores, measures | others | _costs(rows), curve=over_corrections)


def _costs(rows: Sequence[Row]) -> dict[str, float]:
    """Microseconds of a prediction and of a correction, and the lowest recall of any test."""
    costs = {"recall": min(row.recall for row in rows if row.tested_on != "cost")}
    for row in rows:
        if row.tested_on == "cost":
            costs["prediction_us"] = 1e6 * row.asking / max(row.n, 1)
            costs["correction_us"] = 1e6 * row.correcting / max(row.corrections, 1)
    return costs
