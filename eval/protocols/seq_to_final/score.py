"""Scores: accuracy on the last step, from counts."""

from __future__ import annotations

from collections.abc import Sequence

from driftline.eval.protocol import Result
from driftline.eval.rows import Row


def decisive(rows: Sequence[Row]) -> list[Row]:
    """The test on the last step."""
    return [row for row in rows if row.tested_on == "final"]


def scored(rows: Sequence[Row], steps: int) -> Result:
    """final: share of right answers on the last step's test. measures: the same on each step that was tested."""
    accuracy = {row.tested_on: row.n_correct / row.n for row in rows}
    final = next(row for row in rows if row.tested_on == "final")
    by_class = [hits / n if n else None for hits, n in zip(final.class_correct, final.class_n, strict=True)]
    per_step = {f"step_{t}": accuracy[str(t)] for t in range(steps) if str(t) in accuracy}
    return Result({"final": accuracy["final"]}, per_step, by_class or None)
