"""Learners against each other: paired tests, and groups that do not differ.

Everything is computed on the tests that decide the protocol's primary score, in which each sample is tested once. Two
learners are compared on the same samples, seed by seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadConfig
from driftline.eval.protocol import Roles, stored_protocol
from driftline.eval.rows import Row, Run, groups
from driftline.eval.scoring.bands import LEVEL, Array, Band, Floats, half_width_of, of_other_seeds
from driftline.eval.scoring.cells import Resampling, draws_for, spread_out
from driftline.eval.scoring.significance import EQUAL, LEAST_SEEDS, holm
from driftline.stream_builder.stream import Stream

ALPHA = 0.05
Tests = Sequence[Sequence[Sequence[Row]]]  # learner, seed, test
PARTS, NUMBERS = 1000, 2**22  # clusters of a jackknife, and these times tests, at most; more are joined at random


@dataclass(frozen=True)
class Comparison:
    """L learners, in the order of `summary` of the same runs."""

    score: Band
    """(L,) the primary score; intervals over seeds and test samples"""
    difference: Band
    """(L, L) score of the row's learner minus that of the column's, paired; NaN: other seeds"""
    p_score: Floats
    """(L, L) two-sided p of the difference, over other seeds and other test samples; NaN: not testable, see
    `of_differences`"""
    p_outcomes: Floats
    """(L, L) p of these trained models alone, over other test samples; it says nothing about methods, whose
    training differs by seed. NaN: other samples"""
    adjusted: Floats
    """(L, L) `p_score` after Holm, over all pairs"""
    adjusted_outcomes: Floats
    """(L, L) `p_outcomes` after Holm"""
    order: npt.NDArray[np.int64]
    """(L,) learners by score, the best first"""
    ties: tuple[tuple[int, ...], ...]
    """longest runs of learners, in that order, of which no two differ (`adjusted` ≥ 0.05); the first holds the best. ()
    if no pair is testable"""


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
    apart = differences(learners, resampling.groups)
    if apart is None:
        return None
    tests = [[roles.decisive(run.rows) for run in group] for group in learners]
    order = np.argsort(-apart.score.value, kind="stable")
    p_outcomes = _p_of_outcomes(tests, apart.same, resampling.groups)
    return Comparison(
        score=apart.score, difference=apart.difference, p_score=apart.p, p_outcomes=p_outcomes, adjusted=apart.adjusted,
        adjusted_outcomes=holm(p_outcomes), order=order, ties=ties_of(order, apart.adjusted),
    )  # fmt: skip


@dataclass(frozen=True)
class Differences:
    """Of L learners."""

    score: Band
    """(L,) as `Comparison.score`"""
    difference: Band
    """(L, L)"""
    p: Floats
    """(L, L) as `Comparison.p_score`"""
    adjusted: Floats
    """(L, L) after Holm"""
    same: npt.NDArray[np.bool_]
    """(L, L) whether both have the same seeds"""


def differences(
    learners: Sequence[Sequence[Run]],
    clusters: Array | None,
    decisive: Callable[[Sequence[Row]], Sequence[Row]] | None = None,
) -> Differences | None:
    """What tables and pages say about differences of the primary score. learners: runs of each, of one protocol.
    clusters: of each sample by its position in the stream; None: each sample is its own. decisive: the tests of a run
    that are compared (None: those of the primary score). None as for `compare`.

    The variance of a difference of means over S seeds on the same test samples has two parts: of other samples, by a
    jackknife over clusters, and of other seeds, s² / S less what the samples of single seeds add to it. p is that of
    Student's t with S − 1 degrees of freedom, or as many as clusters less one where the answers of all seeds are equal
    (two seeds at least); with fewer than `LEAST_SEEDS` other seeds there is none. NaN of a single cluster, which says
    nothing about others.
    """
    roles = stored_protocol(learners[0][0].about["protocol"]).roles
    chosen = decisive or roles.decisive
    tests = [[chosen(run.rows) for run in group] for group in learners]
    if not all(rows and all(row.answers is not None for row in rows) for group in tests for rows in group):
        return None
    seeds = [[run.about["seed"] for run in group] for group in learners]
    same = np.array([[a == b for b in seeds] for a in seeds])
    points = [np.array([roles.pooled(*_counts(rows)) for rows in group]) for group in tests]  # (S,) each
    value = np.array([float(of_seeds.mean()) for of_seeds in points])
    parts, fixed, numbers = _influences(roles, tests, clusters)
    gaps = np.where(same, value[:, None] - value[None, :], np.nan)
    width, p = np.full(gaps.shape, np.nan), np.full(gaps.shape, np.nan)
    score = np.zeros(len(tests))
    for members in {tuple(np.flatnonzero(row).tolist()) for row in same}:
        at, place = np.ix_(members, members), list(members)
        count = len(points[members[0]])
        of_score, of_samples, of_seeds = _variances(
            np.stack([points[a] for a in members]), np.stack([parts[a] for a in members])
        )
        several = numbers[place].min() > 1
        score[place] = half_width_of(of_score[0], numbers[place], of_score[1], count) if several else np.nan
        unmoved = np.logical_and.outer(fixed[place], fixed[place]) & (count > 1)
        freedom = np.where(unmoved, numbers[place].min() - 1, np.minimum(numbers[place].min(), max(count, 2)) - 1)
        testable = (unmoved | (count >= LEAST_SEEDS)) & several
        error = np.sqrt(of_samples + np.where(unmoved, 0.0, of_seeds) if several else np.full(unmoved.shape, np.nan))
        width[at], p[at] = _student(gaps[at], error, freedom if count > 1 else np.full(error.shape, np.inf), testable)
    np.fill_diagonal(p, np.nan)
    return Differences(
        Band(value, value - score, value + score), Band(gaps, gaps - width, gaps + width), p, holm(p), same
    )


def _student(gap: Floats, error: Floats, freedom: Floats, testable: Array) -> tuple[Floats, Floats]:
    """Half the width of the 95 % interval, and two-sided p where a gap is testable."""
    from scipy.special import stdtr, stdtrit

    freedom = np.maximum(freedom, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.where(error > 0, np.abs(gap) / error, np.where(gap == 0, 0.0, np.inf))
    return stdtrit(freedom, (1 + LEVEL) / 2) * error, np.where(testable, 2 * stdtr(freedom, -far), np.nan)


def _influences(roles: Roles, tests: Tests, clusters: Array | None) -> tuple[list[Floats], Array, Array]:
    """(S, G) for each learner, how its scores deviate without a cluster, scaled so that sums of squares and products
    are their variances and covariances; whether all of its seeds gave equal answers; and its number of clusters."""
    every = [[_samples(rows) for rows in group] for group in tests]
    ids = np.concatenate([sample for group in every for sample in group])
    names = np.unique(ids if clusters is None else clusters[ids])
    groups_at_once = min(len(names), max(2, min(PARTS, NUMBERS // max(len(rows) for group in tests for rows in group))))
    joined = np.arange(len(names)) if len(names) <= groups_at_once else spread_out(names) % groups_at_once
    parts, fixed, numbers, of = [], [], [], dict[bytes, Array]()
    for group, samples in zip(tests, every, strict=True):
        deviations = []
        for rows, sample in zip(group, samples, strict=True):
            key = sample.tobytes()
            if key not in of:
                of[key] = joined[np.searchsorted(names, sample if clusters is None else clusters[sample])]
            test = np.repeat(np.arange(len(rows)), [len(row.answers or ()) for row in rows])
            cell, size = of[key] * len(rows) + test, groups_at_once * len(rows)
            right, n = (
                np.bincount(cell, weights, size).reshape(groups_at_once, -1)
                for weights in (np.concatenate([_right(row) for row in rows]), None)
            )
            present = n.any(1)
            without = roles.pooled(right.sum(0) - right[present], (n.sum(0) - n[present]).astype(np.float64))
            deviation = np.zeros(groups_at_once)
            number = int(present.sum())
            if number > 1:
                deviation[present] = (without - np.nanmean(without)) * np.sqrt((number - 1) / number)
            deviations.append(np.nan_to_num(deviation))
        parts.append(np.stack(deviations))
        numbers.append(len(np.unique(of[samples[0].tobytes()])))
        answers = [b"".join(np.asarray(row.answers and row.answers.predicted).tobytes() for row in g) for g in group]
        alike = all(np.array_equal(sample, samples[0]) for sample in samples)
        fixed.append(alike and len(set(answers)) == 1)
    return parts, np.array(fixed), np.array(numbers)


def _variances(points: Floats, parts: Floats) -> tuple[tuple[Floats, Floats], Floats, Floats]:
    """Scores (L, S) and influences (L, S, G) → variances of means over seeds: those (L,) of scores, of samples and of
    seeds, and of differences (L, L), of samples; of seeds."""
    count, means = points.shape[1], parts.mean(1)
    apart = points - points.mean(1, keepdims=True)
    single = (parts - means[:, None]).reshape(len(parts), -1)  # what a seed adds to what samples do to all
    scale = max(1, count * (count - 1))
    of_seeds = of_other_seeds((apart**2).sum(1) / scale, (single**2).sum(1) / scale, count)
    of_gaps = of_other_seeds(_of_pairs(apart) / scale, _of_pairs(single) / scale, count)
    return ((means**2).sum(1), of_seeds), _of_pairs(means), of_gaps


def _of_pairs(values: Floats) -> Floats:
    """(L, K) → (L, L) sums of squared differences."""
    products = values @ values.T
    squares = np.diag(products)
    return np.maximum(0.0, squares[:, None] + squares[None, :] - 2 * products)


def _samples(rows: Sequence[Row]) -> Array:
    return np.concatenate([np.asarray(row.answers and row.answers.sample, np.int64) for row in rows])


def _right(row: Row) -> Array:
    """(n,) 1 for a right answer."""
    assert row.answers is not None  # `compare` has made sure
    return np.asarray(row.answers.label == row.answers.predicted, np.uint8)


def _counts(rows: Sequence[Row]) -> tuple[Floats, Floats]:
    """Right answers and samples (R,) of some tests."""
    return np.array([row.n_correct for row in rows], float), np.array([row.n for row in rows], float)


def _p_of_outcomes(tests: Tests, same_seeds: Array, clusters: Array | None) -> Floats:
    """Of right answers that only one of two learners has, mean over seeds: their sum over clusters against the root of
    their sum of squares, which changes of sign would give; Student's t with as many degrees of freedom as clusters in
    which both differ, less one. Without clusters and with one seed that is McNemar's test."""
    from scipy.special import stdtr

    p = np.full((len(tests), len(tests)), np.nan)
    for seeds in {tuple(row.tolist()) for row in same_seeds}:
        group = np.flatnonzero(seeds)
        sample, hits_of = np.sort(_samples(tests[group[0]][0])), dict[int, Floats]()
        for a in group.tolist():
            orders = [np.argsort(_samples(rows), kind="stable") for rows in tests[a]]  # some protocols shuffle by seed
            pairs = list(zip(tests[a], orders, strict=True))
            if all(np.array_equal(_samples(rows)[order], sample) for rows, order in pairs):
                right = [np.concatenate([_right(row) for row in rows])[order] for rows, order in pairs]
                hits_of[a] = np.mean(right, 0)
        if not hits_of:
            continue
        equal, hits = list(hits_of), list(hits_of.values())
        _, cluster = np.unique(sample if clusters is None else clusters[sample], return_inverse=True)
        sums = np.stack([np.bincount(cluster, of_learner).astype(np.float64) for of_learner in hits])  # (L, G)
        count = np.stack([(np.abs(sums - one) > EQUAL).sum(1) for one in sums])
        gap, root = np.abs(sums.sum(1)[:, None] - sums.sum(1)), np.sqrt(_of_pairs(sums))
        far = gap / np.where(root > EQUAL, root, 1.0)
        p[np.ix_(equal, equal)] = np.where(count > 1, 2 * stdtr(np.maximum(count - 1, 1), -far), 1.0)
    np.fill_diagonal(p, np.nan)
    return p


def ties_of(order: npt.NDArray[np.int64], adjusted: Floats) -> tuple[tuple[int, ...], ...]:
    """The longest runs of which no two differ; a pair without p does not differ. () if no pair has one."""
    if len(order) > 1 and np.isnan(adjusted).all():
        return ()
    differ = adjusted[np.ix_(order, order)] < ALPHA
    runs: list[tuple[int, int]] = []
    for i in range(len(order)):
        j = i + 1
        while j < len(order) and not differ[i : j + 1, i : j + 1].any():
            j += 1
        if not runs or j > runs[-1][1]:
            runs.append((i, j))
    return tuple(tuple(int(a) for a in order[i:j]) for i, j in runs)
