"""Scores from rows: online and near-future accuracy, retention [near-future accuracy, sec. 3 and 4]."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from driftline.eval.protocol import Result
from driftline.eval.rows import Row


def accuracy(rows: Sequence[Row], tested_on: str) -> float:
    """Share of right answers in all such tests; NaN if there were none."""
    n = sum(row.n for row in rows if row.tested_on == tested_on)
    return sum(row.n_correct for row in rows if row.tested_on == tested_on) / n if n else float("nan")


def running(rows: Sequence[Row], tested_on: str) -> tuple[list[int], list[float]]:
    """Samples seen, and the accuracy on all tested until then."""
    tests = [row for row in rows if row.tested_on == tested_on and row.n]
    right, n = np.cumsum([row.n_correct for row in tests]), np.cumsum([row.n for row in tests])
    return [row.seen for row in tests], (right / n).tolist()


def shifts(rows: Sequence[Row]) -> dict[int, float]:
    """Accuracy at every further shift that was scored."""
    scored_at = sorted({int(row.tested_on[6:]) for row in rows if row.tested_on.startswith("shift/")})
    return {s: accuracy(rows, f"shift/{s}") for s in scored_at}


def step_tested(row: Row) -> int | None:
    """Of tests on the held-out samples of a period."""
    return int(row.tested_on[10:]) if row.tested_on.startswith("retention/") else None


def decisive(rows: Sequence[Row]) -> list[Row]:
    """Tests S samples ahead."""
    return [row for row in rows if row.tested_on == "near_future" and row.n]


def retention(rows: Sequence[Row], steps: int) -> npt.NDArray[np.float64]:
    """(T, T): accuracy on the held-out samples of period j after period i; NaN for j > i."""
    cells = np.full((steps, steps), np.nan)
    for row in rows:
        if row.tested_on.startswith("retention/"):
            cells[row.learned_to, int(row.tested_on[10:])] = row.n_correct / row.n
    return cells


def retained(rows: Sequence[Row]) -> dict[int, float]:
    """Accuracy of the last model on the held-out samples of the periods up to each one; {} if there are none. The last
    is the paper's backward transfer @ T [its figures 4, 6 to 12]."""
    tests = [row for row in rows if row.tested_on.startswith("retention/")]
    last = max((row.learned_to for row in tests), default=-1)
    of_last = sorted((int(row.tested_on[10:]), row.n_correct, row.n) for row in tests if row.learned_to == last)
    right, n = (np.cumsum([row[k] for row in of_last]) for k in (1, 2))
    return dict(zip((period for period, *_ in of_last), (right / n).tolist(), strict=True))


def scored(rows: Sequence[Row], steps: int) -> Result:
    """Scores, the accuracy at further shifts, the retention matrix and the running curves."""
    at, value = running(rows, "near_future")
    at_online, online = running(rows, "online")
    scores: dict[str, float | None] = {name: accuracy(rows, name) for name in ("online", "near_future")}
    measures = {f"shift_{s}": share for s, share in shifts(rows).items()}
    curve: dict[str, Sequence[float]] = {"at": at, "value": value, "online_at": at_online, "online": online}
    after = retained(rows)
    curve |= {"period": list(after), "retention": list(after.values())}
    final = next(reversed(after.values()), None)
    return Result(scores | {"retention": final}, measures, None, retention(rows, steps), curve)
