"""Scores: accuracy on the last step, from counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eval.rows import Row


def scored(rows: Sequence[Row], steps: int) -> dict[str, Any]:
    """final: share of right answers on the last step's test. measures: the same on each step that was tested."""
    of = {row.tested_on: row.n_correct / row.n for row in rows}
    final = next(row for row in rows if row.tested_on == "final")
    by_class = [h / n if n else None for h, n in zip(final.class_correct, final.class_n, strict=True)]
    return {
        "scores": {"final": of["final"]},
        "measures": {f"step_{t}": of[str(t)] for t in range(steps) if str(t) in of},
        "by_class": by_class or None,
        "matrix": None,
        "curve": None,
    }
