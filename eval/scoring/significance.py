"""Confidence intervals over seeds and over test samples, and paired tests between all learners."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from driftline.eval.rows import Row, changed
from driftline.eval.scoring.bands import Floats
from driftline.stream_builder.measures.label_correlation import half_width as of_runs
from driftline.stream_builder.measures.label_correlation import independent

EQUAL = 1e-12  # rounding
LEAST_SEEDS = 3  # of a test over seeds: two have one degree of freedom
FINE = 1000  # factor of all counts, so that rounding does not matter


def half_width(values: Sequence[float], level: float = 0.95) -> float | None:
    """Half the width of the t interval of the mean over seeds; None for one seed, and for seeds that change nothing.

    >>> round(half_width([0.90, 0.92, 0.94]), 4)
    0.0497
    """
    if len(values) < 2 or np.ptp(values) <= EQUAL:
        return None
    from scipy.special import stdtrit

    deviation = float(np.std(values, ddof=1))
    return float(stdtrit(len(values) - 1, (1 + level) / 2)) * deviation / float(np.sqrt(len(values)))


def paired(scores: Floats) -> Floats:
    """(L, S) scores of learners under the same seeds → (L, L) two-sided p of the paired t test. NaN for fewer than
    three seeds, and where all seeds have the same difference: then they are copies of one run, and there is nothing to
    test with.

    >>> paired(np.array([[0.9, 0.9, 0.9], [0.8, 0.8, 0.8]]))[0, 1]
    np.float64(nan)
    """
    learners, seeds = scores.shape
    p = np.full((learners, learners), np.nan)
    if seeds < LEAST_SEEDS:
        return p
    from scipy.special import stdtr  # scipy.stats.ttest_rel takes a millisecond

    i, j = np.triu_indices(learners, 1)
    differences = scores[i] - scores[j]
    size = np.maximum(1.0, np.abs(scores).max(1))
    vary = np.ptp(differences, axis=1) > EQUAL * np.maximum(size[i], size[j])
    i, j, differences = i[vary], j[vary], differences[vary]
    error = np.std(differences, axis=1, ddof=1) / np.sqrt(seeds)
    p[i, j] = p[j, i] = 2 * stdtr(seeds - 1, -np.abs(differences.mean(1)) / error)
    return p


def holm(p: Floats) -> Floats:
    """(L, L) symmetric p → p after Holm over the pairs that have one [Holm 1979]."""
    out = np.full(p.shape, np.nan)
    i, j = np.triu_indices(len(p), 1)
    present = ~np.isnan(p[i, j])
    i, j = i[present], j[present]
    order = np.argsort(p[i, j], kind="stable")
    adjusted = np.minimum(1.0, np.maximum.accumulate(p[i, j][order] * np.arange(len(order), 0, -1)))
    out[i[order], j[order]] = out[j[order], i[order]] = adjusted
    return out


def over_samples(
    score: Callable[[Sequence[Row]], Mapping[str, float | None]], rows: Sequence[Row], fresh: Sequence[str] = ()
) -> dict[str, float | None]:
    """Half the width of each score's 95 % interval over other test samples of the same kind, from the counts of one
    run; None for a score that was not reached.

    Every set of test samples adds the variance that its counts give to the score. Rows with one `tested_on` are tests
    of the same samples, taken as independent, and move together. Those that begin with a word of `fresh` are
    consecutive parts of a stream, whose answers may come in runs: a block bootstrap over the rows.

    >>> rows = [Row("0", 400, 300), Row("0", 400, 300)]
    >>> mean = lambda rows: {"mean": sum(r.n_correct / r.n for r in rows) / len(rows)}
    >>> round(over_samples(mean, rows)["mean"], 3), round(over_samples(mean, rows, ("0",))["mean"], 3)
    (0.042, 0.03)
    """
    groups: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        if row.n:
            groups.setdefault(row.tested_on, []).append(i)
    fine = [changed(row, {"n": row.n * FINE, "n_correct": row.n_correct * FINE}) for row in rows]
    whole = score(fine)
    variance = dict.fromkeys(whole, 0.0)
    for tested_on, places in groups.items():
        lower = list(fine)
        n, right = (np.array([getattr(rows[i], key) for i in places], float) for key in ("n", "n_correct"))
        in_runs = tested_on.startswith(tuple(fresh))
        halves = [of_runs(right, n)] * len(n) if in_runs else independent(right, n).tolist()
        for i, half in zip(places, halves, strict=True):
            lower[i] = changed(fine[i], {"n_correct": round(fine[i].n_correct - FINE * rows[i].n * half)})
        for name, value in score(lower).items():
            base = whole[name]
            variance[name] += np.nan if base is None or value is None else (base - value) ** 2
    return {name: None if np.isnan(v) else float(np.sqrt(v)) for name, v in variance.items()}
