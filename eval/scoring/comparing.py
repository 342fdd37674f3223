"""Learners against each other: paired tests, groups that do not differ, and how stable the ranking is.

Everything is computed on the tests that decide the protocol's primary score, in which each sample is tested once. Two
learners are compared on the same samples, seed by seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadConfig
from driftline.eval.protocol import Roles, stored_protocol
from driftline.eval.rows import Row, Run
from driftline.eval.scoring.aggregate import groups
from driftline.eval.scoring.bands import Array, Band, Floats, band
from driftline.eval.scoring.cells import Resampling, draws_for, weighted_sums
from driftline.eval.scoring.significance import holm
from driftline.stream_builder.stream import Stream

ALPHA = 0.05
HALVES = 200  # divisions of the test samples at random


@dataclass(frozen=True)
class Comparison:
    """L learners, in the order of `summary` of the same runs."""

    score: Band
    """(L,) the primary score; intervals over seeds and test samples"""
    difference: Band
    """(L, L) score of the row's learner minus that of the column's, paired; NaN: other seeds"""
    p_score: Floats
    """(L, L) two-sided p of the difference: Student's t with the standard error of the paired bootstrap"""
    p_outcomes: Floats
    """(L, L) exact McNemar of right and wrong answers; over seeds twice the median p; NaN: other samples"""
    adjusted: Floats
    """(L, L) `p_score` after Holm, over all pairs"""
    adjusted_outcomes: Floats
    """(L, L) `p_outcomes` after Holm"""
    order: npt.NDArray[np.int64]
    """(L,) learners by score, the best first"""
    ties: tuple[tuple[int, ...], ...]
    """longest runs of learners, in that order, of which no two differ (`adjusted` ≥ 0.05); the first holds the best"""
    rank: Band
    """(L,) rank by score, 1 the best, ties shared"""
    stability: float
    """mean Kendall τ between the rankings on two random halves of the test samples; NaN for one learner"""
    same_best: float
    """share of the halvings in which both halves have the same best learner; NaN for one learner"""


def compare(
    runs: Sequence[Run], stream: Stream | None = None, resampling: Resampling | None = None
) -> Comparison | None:
    """Compare the learners of runs of one protocol with the same settings on one stream. None where the protocol does
    not say which tests decide its primary score (`Protocol.roles`), or runs have no outcomes.

    stream: gives the groups of uploaders and near copies. Raises BadConfig for runs of several
    protocols, IncompatibleStream for another stream than that of the runs.
    """
    names = {run.about["protocol"] for run in runs}
    if len(names) != 1:
        raise BadConfig(f"The runs are of {len(names)} protocols.", "Expected runs of one.")
    roles = stored_protocol(names.pop()).roles
    resampling = draws_for(runs, stream, resampling)
    learners = groups(runs)
    tests = [[roles.decisive(run.rows) for run in group] for group in learners]
    if not all(rows and all(row.answers is not None for row in rows) for group in tests for rows in group):
        return None
    seeds = [[run.about["seed"] for run in group] for group in learners]
    points = [np.array([roles.pooled(*_counts(rows)) for rows in group]) for group in tests]  # (S,) each
    value = np.array([float(of_seeds.mean()) for of_seeds in points])
    together = _together(tests)
    drawn = _drawn(roles, tests, together, resampling)  # (B, S) each
    total = np.stack([(d * resampling.seeds(d.shape[1])).sum(1) for d in drawn], -1)  # (B, L)
    same = np.array([[a == b for b in seeds] for a in seeds])
    gaps = np.where(same, value[:, None] - value[None, :], np.nan)
    drawn_gaps = np.where(same, total[:, :, None] - total[:, None, :], np.nan)
    p_score = _p_of_scores(gaps, drawn_gaps, points)
    p_outcomes = _p_of_outcomes(tests, same)
    adjusted = holm(p_score)
    order = np.argsort(-value, kind="stable")
    stability, same_best = _stability(_halves(roles, tests, together, resampling))
    return Comparison(
        score=band(value, total), difference=band(gaps, drawn_gaps), p_score=p_score, p_outcomes=p_outcomes,
        adjusted=adjusted, adjusted_outcomes=holm(p_outcomes), order=order, ties=_ties(order, adjusted),
        rank=band(ranks_of(value), ranks_of(total)), stability=stability, same_best=same_best,
    )  # fmt: skip


def mcnemar(only_a: Array, only_b: Array) -> Floats:
    """Exact two-sided p of McNemar's test from the numbers of samples that only one of two learners has right."""
    from scipy.special import bdtr  # the binomial's distribution; scipy.stats takes more than a second to import

    a, b = np.asarray(only_a, np.int64), np.asarray(only_b, np.int64)
    return np.asarray(np.minimum(1.0, 2 * bdtr(np.minimum(a, b), a + b, 0.5)))


def _right(row: Row) -> Array:
    """(n,) 1 for a right answer."""
    assert row.answers is not None  # `compare` has made sure
    return np.asarray(row.answers.label == row.answers.predicted, np.uint8)


def _counts(rows: Sequence[Row]) -> tuple[Floats, Floats]:
    """Right answers and samples (R,) of some tests."""
    return np.array([row.n_correct for row in rows], float), np.array([row.n for row in rows], float)


Tests = Sequence[Sequence[Sequence[Row]]]  # learner, seed, test
Together = Sequence[tuple[Array, Array, Sequence[tuple[int, int, int]]]]  # see `_together`


def _together(tests: Tests) -> Together:
    """Tests of the same samples: these (N,), ones and the tests' right answers (1 + K, N), learner, seed and test."""
    places: dict[bytes, list[tuple[int, int, int]]] = {}
    for a, group in enumerate(tests):
        for s, rows in enumerate(group):
            for r, row in enumerate(rows):
                places.setdefault(np.asarray(row.answers and row.answers.sample).tobytes(), []).append((a, s, r))
    shared = []
    for same in places.values():
        first = tests[same[0][0]][same[0][1]][same[0][2]].answers
        assert first is not None  # `compare` has made sure
        values = np.stack([np.ones(len(first), np.uint8), *(_right(tests[a][s][r]) for a, s, r in same)])
        shared.append((np.asarray(first.sample), values, same))
    return shared


def _drawn(
    roles: Roles, tests: Tests, together: Together, resampling: Resampling, others: bool = False
) -> list[Floats]:
    """(B, S) for each learner: its score under the weights of each replicate or, of halves, on the `others`."""
    sums: dict[tuple[int, int, int], tuple[Array, Array]] = {}
    for sample, values, same in together:
        weighted = weighted_sums(resampling, sample, values)  # (B, 1 + K)
        weighted = values.sum(1) - weighted if others else weighted
        sums |= {place: (weighted[:, 1 + k], weighted[:, 0]) for k, place in enumerate(same)}
    out = []
    for a, group in enumerate(tests):
        scores = []
        for s, rows in enumerate(group):
            right, n = (np.stack([sums[a, s, r][part] for r in range(len(rows))], -1) for part in (0, 1))
            scores.append(roles.pooled(right.astype(np.float64), n.astype(np.float64)))
        out.append(np.stack(scores, -1))
    return out


def _p_of_scores(gaps: Floats, drawn: Floats, points: Sequence[Floats]) -> Floats:
    """Student's t with Satterthwaite's degrees of freedom: the seeds' part of the variance has S − 1."""
    from scipy.special import stdtr

    finite = (~np.isnan(drawn)).sum(0) > 1  # a replicate may have drawn no sample of any test
    np.fill_diagonal(finite, False)
    i, j = np.nonzero(~np.isnan(gaps) & finite)
    error, gap = np.nanstd(drawn[:, i, j], axis=0), np.abs(gaps[i, j])
    count = np.array([len(of_seeds) for of_seeds in points])[i]
    pairs = zip(i.tolist(), j.tolist(), count.tolist(), strict=True)
    seeds = np.array([np.var(points[a] - points[b], ddof=1) if size > 1 else 0.0 for a, b, size in pairs])
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = np.where(seeds > 0, np.maximum(count - 1, error**4 * (count - 1) / (seeds / count) ** 2), np.inf)
        far = np.where(error > 0, gap / error, np.where(gap == 0, 0.0, np.inf))
    p = np.full(gaps.shape, np.nan)
    p[i, j] = 2 * stdtr(freedom, -far)
    return p


def _p_of_outcomes(tests: Tests, same_seeds: Array) -> Floats:
    """McNemar for every seed; over seeds twice the median, which is a p under any dependence [Rüger 1978]."""
    p = np.full((len(tests), len(tests)), np.nan)
    for seeds in {tuple(row.tolist()) for row in same_seeds}:
        group = np.flatnonzero(seeds)
        members = group.tolist()
        p_values = []
        for s in range(len(tests[members[0]])):
            samples = [[np.asarray(row.answers and row.answers.sample) for row in tests[a][s]] for a in members]
            equal = np.array([_same(one, samples[0]) for one in samples])
            right = np.stack([np.concatenate([_right(row) for row in tests[a][s]]) for a in group[equal]])
            right = right.astype(np.float32)
            only = right @ (1 - right).T
            whole = np.full((len(group), len(group)), np.nan)
            whole[np.ix_(equal, equal)] = mcnemar(only.round(), only.T.round())
            p_values.append(whole)
        combined = p_values[0] if len(p_values) == 1 else np.minimum(1.0, 2 * np.median(p_values, axis=0))
        p[np.ix_(group, group)] = combined
    np.fill_diagonal(p, np.nan)
    return p


def _same(a: Sequence[Array], b: Sequence[Array]) -> bool:
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def _ties(order: npt.NDArray[np.int64], adjusted: Floats) -> tuple[tuple[int, ...], ...]:
    """The longest runs of which no two differ; a pair without p does not differ."""
    differ = adjusted[np.ix_(order, order)] < ALPHA
    runs: list[tuple[int, int]] = []
    for i in range(len(order)):
        j = i + 1
        while j < len(order) and not differ[i : j + 1, i : j + 1].any():
            j += 1
        if not runs or j > runs[-1][1]:
            runs.append((i, j))
    return tuple(tuple(int(a) for a in order[i:j]) for i, j in runs)


def ranks_of(scores: Floats) -> Floats:
    """(..., L) ranks of scores, 1 the highest; ties share their mean."""
    above = scores[..., None, :] - scores[..., :, None]
    return np.asarray(0.5 + (above > 0).sum(-1) + (above == 0).sum(-1) / 2, np.float64)


def _halves(roles: Roles, tests: Tests, together: Together, resampling: Resampling) -> Floats:
    """(2, H, L) scores, means over seeds, on both halves of the clusters, at random."""
    half = Resampling(HALVES, resampling.seed, resampling.groups, half=True)
    both = [_drawn(roles, tests, together, half, others) for others in (False, True)]
    return np.stack([np.stack([of_seeds.mean(1) for of_seeds in scores], -1) for scores in both])


def _stability(halves: Floats) -> tuple[float, float]:
    """Mean τ, without ties, and the share with the same best."""
    if halves.shape[-1] < 2:
        return float("nan"), float("nan")
    i, j = np.triu_indices(halves.shape[-1], 1)
    signs = np.sign(halves[..., i] - halves[..., j])
    best = halves.argmax(-1)
    return float((signs[0] * signs[1]).mean()), float((best[0] == best[1]).mean())
