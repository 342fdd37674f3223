"""How models age: accuracy against the time since training, half-lives, and why accuracy falls.

Everything follows from R[i, j], the accuracy on step j of a model that was trained up to step i, by class. A lag is
j − i; the base lag is the smallest one from 0 on that is tested: 1 where no step is tested after it was learned. Bands
are 95 % percentile intervals of a bootstrap over seeds and test samples (see `cells`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from eval.rows import Run
from eval.scoring.aggregate import groups
from eval.scoring.bands import Array, Band, Floats, band
from eval.scoring.causes import Causes, causes
from eval.scoring.cells import Resampling, cells_of, draws_for, replicates
from eval.scoring.decay import HalfLife, by_lag, half_life, slope
from eval.scoring.timeline import Timeline, timeline
from stream_builder.stream import Stream


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
    pairs: npt.NDArray[np.int64]
    """(K,) number of pairs of training and tested step"""
    accuracy: Band
    """(K,) mean of R over the pairs of a lag"""
    accuracy_of: Band
    """(C, K) the same for each class"""
    matrix: Band
    """(T, T) R; NaN: not tested"""
    slope: Band
    """() change of a model's accuracy per unit of time after its training"""
    slope_of: Band
    """(C,) the same for each class"""
    half_life: HalfLife
    """of accuracy above chance, or the time to a stated loss"""
    half_life_of: tuple[HalfLife, ...]
    """(C,) of each class"""
    causes: Causes
    """of the lags from the base lag on, `lags[base:]`"""
    chance: Floats
    """(T,) share of each step's most frequent class, which a constant answer reaches; that of a class is 1 / C"""
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

    runs: of one protocol and stream. stream: gives the groups of uploaders and near copies, and the dates for runs of
    older versions. loss: half-lives become the time until accuracy has fallen by this much (0 … 1). resampling: the
    draws; default: 1,000, clustered if the stream has groups. Raises IncompatibleStream for another stream than that of
    the runs.
    """
    resampling = draws_for(runs, stream, resampling)
    return [_ageing(group, stream, loss, resampling) for group in groups(runs)]


def _ageing(runs: Sequence[Run], stream: Stream | None, loss: float | None, resampling: Resampling) -> Ageing | None:
    cells = cells_of(runs)
    if cells is None:
        return None
    times = timeline(runs[0].about, stream)
    right, n = cells.right.sum(0), cells.n.sum(0)  # (T, T, C)
    drawn_right, drawn_n = replicates(cells, resampling)  # (B, T, T, C)
    tested = n.sum(-1) > 0
    steps, width = len(n), n.shape[-1]
    lags = np.array([k for k in range(1 - steps, steps) if np.diagonal(tested, k).any()], np.int64)
    base = int(np.searchsorted(lags, 0))
    ages, later = times.ages(), lags[base:]
    first = int(later[0]) if len(later) else steps
    age = np.array([np.diagonal(ages, k)[np.diagonal(tested, k)].mean() for k in lags.tolist()])
    r, drawn = _share(right.sum(-1), n.sum(-1)), _share(drawn_right.sum(-1), drawn_n.sum(-1))
    r_of, drawn_of = (  # (C, T, T), (B, C, T, T)
        np.moveaxis(_share(a, b), -1, -3)[..., : width if cells.classes else 0, :, :]
        for a, b in ((right, n), (drawn_right, drawn_n))
    )
    chance, even = _chance(n, cells.classes), np.full(steps, 1 / width)
    halves = [half_life(r_of[c], drawn_of[:, c], even, age[base:], later, loss) for c in range(len(r_of))]
    return Ageing(
        timeline=times,
        lags=lags,
        base=base,
        age=age,
        pairs=np.array([np.diagonal(tested, k).sum() for k in lags.tolist()], np.int64),
        accuracy=band(by_lag(r, lags), by_lag(drawn, lags)),
        accuracy_of=band(by_lag(r_of, lags), by_lag(drawn_of, lags)),
        matrix=band(r, drawn),
        slope=band(slope(r, ages, first), slope(drawn, ages, first)),
        slope_of=band(slope(r_of, ages, first), slope(drawn_of, ages, first)),
        half_life=half_life(r, drawn, chance, age[base:], later, loss),
        half_life_of=tuple(halves),
        causes=causes(right, n, drawn_right, drawn_n, later, cells.classes),
        chance=chance,
        seeds=tuple(int(run.about["seed"]) for run in runs),
        basis=cells.basis,
        clustered=cells.outcomes is not None and resampling.groups is not None,
    )


def _share(right: Array, n: Array) -> Array:
    """NaN of nothing."""
    return np.where(n > 0, right / np.where(n > 0, n, 1), np.nan)


def _chance(n: Floats, classes: bool) -> Floats:
    """(T,) share of each tested step's most frequent class; 0 where classes are not counted."""
    of_step = n.max(0)  # (T, C): all models are tested on the same samples
    total = of_step.sum(-1)
    return np.where(total > 0, of_step.max(-1) / np.maximum(total, 1), 0.0) if classes else np.zeros(len(n))
