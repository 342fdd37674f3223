"""Learners against each other: paired tests, and groups that do not differ.

Everything is computed on the tests that decide the protocol's primary score, in which each sample is tested once. Two
learners are compared on the same samples, seed by seed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from driftline.eval.protocol import Roles, stored_protocol
from driftline.eval.rows import Row, Run
from driftline.eval.scoring.bands import EQUAL, Array, Band, Floats, half_of, holm, p_of
from driftline.eval.scoring.sums import Drawn, Draws, Resampling, combined, drawn, draws_of, of_pairs, summed

ALPHA = 0.05
TINY = 1e-300  # a variance of nothing
Decisive = Callable[[Sequence[Row]], Sequence[Row]]
Scored = tuple[Drawn, Floats]


@dataclass(frozen=True)
class Comparison:
    """L learners."""

    score: Band
    """(L,) the primary score; intervals over seeds and test samples"""
    difference: Band
    """(L, L) score of the row's learner minus that of the column's, paired; NaN: other seeds"""
    p_score: Floats
    """(L, L) two-sided p of the difference, over other seeds and other test samples; NaN: see `compare`"""
    adjusted: Floats
    """(L, L) `p_score` after Holm, over all pairs"""
    p_predictions: Floats
    """(L, L) p of these trained models alone, over other test samples; it says nothing about methods, whose
    training differs by seed. NaN: other seeds"""

    @property
    def ties(self) -> tuple[tuple[int, ...], ...]:
        """Longest runs of learners, the best score first, of which no two differ (`adjusted` ≥ 0.05); the first holds
        the best. () if no pair is testable."""
        return ties_of(np.argsort(-self.score.value, kind="stable"), self.adjusted)


def compare(
    learners: Sequence[Sequence[Run]], clusters: Array | None = None, decisive: Decisive | None = None,
    scored: Sequence[Scored | None] | None = None,
) -> Comparison | None:  # fmt: skip
    """What tables and pages say about differences of the primary score. learners: runs of each, of one protocol with
    one set of settings on one stream. clusters: of each sample by its position in the stream; None: each sample is its
    own. decisive: the tests of a run that are compared (None: those of the primary score). scored: as of `score_of`,
    with the same draws, if known. None where the protocol does not say which tests decide its primary score
    (`Protocol.roles`), or runs have no predictions.

    The variance is that of `sums.Drawn`; degrees of freedom over samples are as many as groups in which the two
    learners differ, less one. With one seed the interval is of these models, on other samples, and there is no p; nor
    of a single cluster, which says nothing about others.
    """
    if scored is None:
        draws = draws_of([run for group in learners for run in group], Resampling(groups=clusters))
        scored = [score_of(group, draws, decisive) for group in learners]
    known = [one for one in scored if one is not None]
    if len(known) < len(scored):
        return None
    scores, hits = [one for one, _ in known], np.stack([of for _, of in known])
    bands = Band.stacked([one.of_share() for one in scores])
    seeds = [[run.about["seed"] for run in group] for group in learners]
    gaps, width, p, p_predictions = np.full((4, len(learners), len(learners)), np.nan)
    for members in {tuple(k for k, other in enumerate(seeds) if other == own) for own in map(list, seeds)}:
        of_members = _of_members([scores[k] for k in members], hits[list(members)])
        for whole, part in zip((gaps, width, p, p_predictions), of_members, strict=True):
            whole[np.ix_(members, members)] = part
    for one in (p, p_predictions):
        np.fill_diagonal(one, np.nan)
    return Comparison(bands, Band.around(gaps, width), p, adjusted(p), p_predictions)


def score_of(runs: Sequence[Run], draws: Draws, decisive: Decisive | None = None) -> Scored | None:
    """The primary score of one learner, with other samples and seeds, and its right answers (G,) in each group, mean
    over seeds. decisive: as for `compare`. None without tests or predictions."""
    roles = stored_protocol(runs[0].about["protocol"]).roles
    tests = [(decisive or roles.decisive)(run.rows) for run in runs]
    if not all(rows and all(row.answers is not None for row in rows) for rows in tests):
        return None
    one = roles.pooled is Roles.pooled  # then all tests are as one
    cells = cache(lambda k, size: np.full(size, 0 if one else k))
    parts = [[(a, cells(k, len(a))) for k, row in enumerate(rows) if (a := row.answers) is not None] for rows in tests]
    of = summed(parts, (1 if one else max(map(len, tests)),), draws)
    found = drawn(lambda right, n: {"": roles.pooled(right, n)}, of, each=True)[""]
    hits = [np.asarray(part.sum(1), np.float64).ravel() for part in of.parts[0]]
    return found, np.mean(hits, 0)


def _of_members(scores: Sequence[Drawn], hits: Floats) -> tuple[Array, Array, Array, Array]:
    """(M, M) differences, half their intervals, p over seeds and samples, and p over samples alone, of M learners with
    the same seeds."""
    clusters = min(one.clusters for one in scores)
    parts = ("value", "samples", "seeds", "single")
    value, samples, of_each, single = (np.stack([getattr(one, name) for one in scores], -1) for name in parts)
    whole = Drawn(value, samples, of_each, single, clusters)
    count, (of_samples, of_seeds, of_single) = len(whole.seeds), whole.variances(of_pairs)
    differ = np.stack([(np.abs(hits - one) > EQUAL).sum(1) for one in hits])
    total, by_seeds = combined(of_samples, of_seeds, of_single, count)
    gaps = whole.value[:, None] - whole.value[None, :]
    nothing = np.full(gaps.shape, np.nan)
    if clusters < 2:
        return gaps, nothing, nothing, nothing
    far, of_these = (np.abs(gaps) / np.sqrt(np.maximum(variance, TINY)) for variance in (total, of_samples))
    p = p_of(far, by_seeds, differ, count) if count > 1 else nothing
    return gaps, half_of(total, by_seeds, differ, count), p, p_of(of_these, 0.0, differ, count)


def adjusted(p: Floats) -> Floats:
    """(L, L) symmetric p → p after Holm over all pairs that have one."""
    out, (i, j) = np.full(p.shape, np.nan), np.triu_indices(len(p), 1)
    out[i, j] = out[j, i] = holm(p[i, j])
    return out


def ties_of(order: npt.NDArray[np.int64], p: Floats) -> tuple[tuple[int, ...], ...]:
    """The longest runs of which no two differ; a pair without p does not differ. () if no pair has one."""
    if len(order) > 1 and np.isnan(p).all():
        return ()
    differ = p[np.ix_(order, order)] < ALPHA
    runs: list[tuple[int, int]] = []
    for i in range(len(order)):
        j = i + 1
        while j < len(order) and not differ[i : j + 1, i : j + 1].any():
            j += 1
        if not runs or j > runs[-1][1]:
            runs.append((i, j))
    return tuple(tuple(int(a) for a in order[i:j]) for i, j in runs)
