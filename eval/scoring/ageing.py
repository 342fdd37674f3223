"""How models age: accuracy against the time since training, half-lives, and why accuracy falls.

Everything follows from R[i, j], the accuracy on step j of a model that last changed at step i, by class: a model that
learns nothing at later steps has no rows there, and goes on ageing (see `rows.new_models`). A lag is j − i; the base
lag is the smallest one from 0 on that is tested: 1 where no step is tested after it was learned. Bands are 95 %
intervals over seeds and test samples (see `cells` and `bands.Layout`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from driftline.eval.rows import Run, groups
from driftline.eval.scoring.bands import Array, Band, Floats, band, share
from driftline.eval.scoring.causes import Causes, causes
from driftline.eval.scoring.cells import Cells, Resampling, cells_of, draws_for, replicates
from driftline.eval.scoring.decay import Curve, HalfLife, by_lag, columns_of, curves, half_lives, slope
from driftline.eval.scoring.timeline import Timeline, timeline
from driftline.stream_builder.measures.label_correlation import independent
from driftline.stream_builder.stream import Stream

NUMBERS = 2**20  # of all replicates of the learners that are computed at once: more do not fit into a cache


@dataclass(frozen=True)
class Ageing:
    """How one learner's models age. T steps, K lags, C classes (0 where rows do not count classes)."""

    timeline: Timeline
    """names, dates and unit of time"""
    lags: npt.NDArray[np.int64]
    """(K,) steps from training to test, rising; below 0: tests on the past"""
    base: int
    """position of the base lag in `lags`; K if there are only tests on the past"""
    age: Floats
    """(K,) mean time from training to test, in the timeline's unit"""
    youngest: Floats
    """(K,) the shortest of these times: where steps are unevenly apart, one lag has many ages"""
    oldest: Floats
    """(K,) the longest of these times"""
    pairs: npt.NDArray[np.int64]
    """(K,) number of pairs of training and tested step whose test also has a model at the base lag, its twin; 0 where
    no test has one"""
    twins: bool
    """whether each lag from the base lag on has such a pair; a learner that never learned again has none"""
    models: int
    """how many different models were tested: 1 for a learner that never learned again"""
    accuracy: Band
    """(K,) on the average test: mean of R at the base lag, and the change to it on the same tests; without `twins`, the
    change of the same models since their first tests, which may be easier (see `by_lag`). With tests on the past alone,
    the lag nearest to 0 takes the place of the base lag"""
    accuracy_of: Band
    """(C, K) the same for each class"""
    curve: Curve
    """accuracy at the ages that many tests have, on the same tests, and the loss per unit of time"""
    matrix: Band
    """(T, T) R; NaN: not tested"""
    slope: Band
    """() change of a model's accuracy per unit of time after its training"""
    half_life: HalfLife
    """of accuracy above chance, or the time to a stated loss"""
    half_life_of: tuple[HalfLife, ...]
    """(C,) of each class"""
    causes: Causes
    """of the lags from the base lag on, `lags[base:]`; NaN where no test has a twin"""
    chance: Floats
    """(T, T) what the best constant answer by training labels reaches: the share of the tested step's samples of the
    class that most training samples of the model have; NaN: not tested. That of a class is 1 / C"""
    chance_by: Literal["training", "tests"]
    """which labels choose the constant answer; "tests", all together, where rows do not say the training labels"""
    seeds: tuple[int, ...]
    """of the runs; with one, bands are over test samples only"""
    basis: Literal["outcomes", "counts"]
    """what the replicates are drawn from; with "counts" (rows without outcomes) bands are approximate"""
    clustered: bool
    """whether samples of one uploader or group of near copies were drawn together"""


def ageing(
    runs: Sequence[Run],
    stream: Stream | None = None,
    loss: float | None = None,
    resampling: Resampling | None = None,
) -> list[Ageing | None]:
    """How each learner ages: one entry for each result of `summary` of the same runs, in its order; None where the
    protocol does not test models on steps (ocrr, seq-to-final).

    runs: of one protocol and stream. stream: gives the groups of uploaders and near copies. loss: half-lives become the
    time until accuracy has fallen by this much (0 … 1). resampling: the draws; default: 1,000, clustered if the stream
    has groups. Raises IncompatibleStream for another stream than that of the runs.
    """
    resampling = draws_for(runs, stream, resampling)
    learners = groups(runs)
    counted = [cells_of(group) for group in learners]
    times = [timeline(group[0].about) for group in learners]
    alike: dict[tuple[Any, ...], list[int]] = {}  # learners whose arrays have the same shape and gaps
    for k, cells in enumerate(counted):
        if cells is not None:
            tested = (cells.n.sum(0).sum(-1) > 0).tobytes()
            key = (cells.n.shape, tested, cells.classes, times[k].names, times[k].at.tobytes(), times[k].dates)
            alike.setdefault(key, []).append(k)
    results: dict[int, Ageing] = {}
    for (shape, *_), members in alike.items():
        at_once = max(1, NUMBERS // (resampling.replicates * int(np.prod(shape[2:]))))
        for start in range(0, len(members), at_once):
            part = members[start : start + at_once]
            present = [one for k in part if (one := counted[k]) is not None]
            ages = _ageing(present, [learners[k] for k in part], times[part[0]], loss, resampling)
            results |= dict(zip(part, ages, strict=True))
    return [results.get(k) for k in range(len(learners))]


def _ageing(
    counted: Sequence[Cells], learners: Sequence[Sequence[Run]], times: Timeline, loss: float | None,
    resampling: Resampling,
) -> list[Ageing]:  # fmt: skip
    """Of L learners that were tested on the same steps."""
    right, n = (np.stack([getattr(cells, name).sum(0) for cells in counted]) for name in ("right", "n"))  # (L, T, T, C)
    drawn_right, drawn_n, layout = replicates(counted, resampling)  # (B + …, L, T, T, C)
    tested, classes = n[0].sum(-1) > 0, counted[0].classes
    steps, width = n.shape[2:]
    lags = np.array([k for k in range(1 - steps, steps) if np.diagonal(tested, k).any()], np.int64)
    base = int(np.searchsorted(lags, 0))
    ages, later = times.ages(), lags[base:]
    first = int(later[0]) if len(later) else steps
    fresh = int(lags[min(base, len(lags) - 1)])
    own = np.zeros(steps, bool)  # whether a step has a test of a fresh model
    own[columns_of(fresh)] = np.diagonal(tested, fresh)
    pairs = [np.diagonal(tested & own, k) for k in lags.tolist()]
    of_lags = [
        np.diagonal(ages, k)[both if both.any() else np.diagonal(tested, k)]
        for k, both in zip(lags.tolist(), pairs, strict=True)
    ]
    age = np.array([of_lag.mean() for of_lag in of_lags])
    twins = all(both.any() for both in pairs[base:])
    r, drawn = share(right.sum(-1), n.sum(-1)), share(drawn_right.sum(-1), drawn_n.sum(-1))
    r_of, drawn_of = (  # (L, C, T, T), (B, L, C, T, T)
        np.moveaxis(share(a, b), -1, -3)[..., : width if classes else 0, :, :]
        for a, b in ((right, n), (drawn_right, drawn_n))
    )
    constant = _constant(counted, n)
    chance, drawn_chance = (_chance(one, constant, classes) for one in (n, drawn_n))
    of_class = r_of.shape[1]
    halves = half_lives(r, drawn, (chance, drawn_chance), age[base:], later, loss, layout)
    halves_of = half_lives(
        r_of.reshape(-1, steps, steps), drawn_of.reshape(len(drawn_of), -1, steps, steps),
        (np.array(1 / width), np.array(1 / width)), age[base:], later, loss, layout,
    )  # fmt: skip
    accuracy, accuracy_of = (
        band(by_lag(exact, lags, fresh, twins), by_lag(draws, lags, fresh, twins), layout)
        for exact, draws in ((r, drawn), (r_of, drawn_of))
    )
    slopes = band(slope(r, ages, first), slope(drawn, ages, first), layout)
    shown = pairs[base:] if twins else [np.diagonal(tested, k) for k in later.tolist()]
    counts = np.array([of_lag.sum() for of_lag in shown], np.int64)
    on_same = curves(r, drawn, r_of, drawn_of, ages, later, counts, layout)
    matrix = _not_certain(band(r, drawn, layout), right, n, counted[0].n.shape[0])
    parts = causes(right, n, drawn_right, drawn_n, later, layout)
    return [
        Ageing(
            timeline=times,
            lags=lags,
            base=base,
            age=age,
            youngest=np.array([of_lag.min() for of_lag in of_lags]),
            oldest=np.array([of_lag.max() for of_lag in of_lags]),
            pairs=np.array([both.sum() for both in pairs], np.int64),
            twins=twins,
            models=int(tested.any(1).sum()),
            accuracy=accuracy[k],
            accuracy_of=accuracy_of[k],
            curve=on_same[k],
            matrix=matrix[k].of_share(),
            slope=slopes[k],
            half_life=halves[k],
            half_life_of=tuple(halves_of[k * of_class : (k + 1) * of_class]),
            causes=Causes(*(getattr(parts, part.name)[k] for part in fields(Causes))),
            chance=chance[k],
            chance_by="training" if (cells.constant >= 0).any() else "tests",
            seeds=tuple(int(run.about["seed"]) for run in runs),
            basis=cells.basis,
            clustered=cells.outcomes is not None and resampling.groups is not None,
        )
        for k, (cells, runs) in enumerate(zip(counted, learners, strict=True))
    ]


def _not_certain(matrix: Band, right: Array, n: Array, seeds: int) -> Band:
    """The same, where no interval is a point: weights of samples move neither a test of one sample nor one whose
    answers are all right or all wrong. right, n: (L, T, T, C) over all seeds, which test the same samples."""
    half = independent(right.sum(-1) / seeds, n.sum(-1) / seeds)
    half = np.where(matrix.low == matrix.high, half, 0.0)
    return Band(matrix.value, matrix.low - half, matrix.high + half)


def _constant(counted: Sequence[Cells], n: Floats) -> npt.NDArray[np.int64]:
    """(L, T) the constant answer of each model, by training labels; else the most frequent class of all tests."""
    often = n.max(1).sum(1).argmax(-1)  # all models are tested on the same samples
    stated = np.stack([cells.constant for cells in counted])
    return np.where(stated >= 0, stated, often[:, None])


def _chance(n: Array, constant: npt.NDArray[np.int64], classes: bool) -> Array:
    """n (..., L, T, T, C), constant (L, T) → (..., L, T, T) share of the samples of that class; 0 where classes are not
    counted."""
    if not classes:
        return np.where(n.sum(-1) > 0, 0.0, np.nan)
    width = n.shape[-1]
    at = np.minimum(constant, width - 1)[..., :, None, None]
    right = np.take_along_axis(n, np.broadcast_to(at, (*n.shape[:-1], 1)), -1)[..., 0]
    return share(np.where(constant[..., None] < width, right, 0), n.sum(-1))
