"""How models age: accuracy against the time since training, half-life, and what newer models do better.

Everything follows from the right answers of tests (trained, tested) by class: see `pairs`. Bands are 95 % intervals
over seeds and test samples: see `sums`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from driftline.eval.rows import Run, groups
from driftline.eval.scoring import decay
from driftline.eval.scoring.bands import Array, Band, share
from driftline.eval.scoring.sums import Drawn, Draws, Resampling, Sums, drawn, draws_of
from driftline.eval.timeline import Timeline, timeline
from driftline.stream_builder.stream import Stream


@dataclass(frozen=True)
class Ageing:
    """How one learner's models age. K lags."""

    timeline: Timeline
    """names, dates and unit of time"""
    lags: npt.NDArray[np.int64]
    """(K,) steps from training to test, rising; below 0: tests on the past"""
    base: int
    """position of the base lag in `lags`; K if there are only tests on the past"""
    curve: decay.Curve
    """accuracy at the ages that many tests have, on the same tests, and the loss per unit of time"""
    half_life: decay.HalfLife
    """of accuracy above chance"""
    older: Band
    """(K,) what newly trained models do better than those of each lag on the same tests, mean over pairs; of the lags
    from the base lag on, `lags[base:]`; NaN where no test has a twin"""
    chance: float
    """what the best constant answer by training labels reaches: the share of the tested step's samples of the class
    that most training samples of the model have, mean over the tests from the base lag on"""
    chance_by: Literal["training", "tests"]
    """which labels choose the constant answer; "tests", all together, where rows do not say the training labels"""
    seeds: tuple[int, ...]
    """of the runs; with one, bands are over test samples only"""
    clustered: bool
    """whether samples of one uploader or group of near-duplicates were drawn together"""


def ageing(
    runs: Sequence[Run], stream: Stream | None = None, resampling: Resampling | None = None
) -> list[Ageing | None]:
    """How each learner ages: one entry for each result of `summary` of the same runs, in its order; None where the
    protocol does not test models on steps (ocrr, seq-to-final), and for runs without predictions.

    runs: of one protocol and stream. stream: gives the groups of uploaders and near-duplicates. resampling: the draws;
    default: 1,000, clustered if the stream has groups. Raises IncompatibleStream for another stream than that of the
    runs.
    """
    draws = draws_of(runs, resampling, stream)
    return [_ageing(group, draws) for group in groups(runs)]


def _ageing(runs: Sequence[Run], draws: Draws) -> Ageing | None:
    times = timeline(runs[0].about)
    summed = decay.sums(runs, draws, times.at)
    if summed is None:
        return None
    pairs, of = summed
    (_, n), stated = of.total.sum(1), decay.constants(runs)
    often = int(n[np.unique(pairs.tested, return_index=True)[1]].sum(0).argmax())  # all models have the same samples
    constant = np.array([stated.get(i, often) for i in pairs.model.tolist()], np.int64)
    base = pairs.base
    by_test, places = decay.placed(pairs, pairs.lags[base:][: decay.ages_shown(_shown(pairs))])
    numbers = _numbers(pairs, of, constant, places)
    bands = {name: one.band() for name, one in numbers.items() if not name.startswith("left")}
    ages = [pairs.age[part] for part in np.split(np.arange(len(pairs.age)), pairs.starts[1:])]
    twins = [pairs.twin[part] >= 0 for part in np.split(np.arange(len(pairs.age)), pairs.starts[1:])]
    of_lags = [age[both if both.any() else slice(None)] for age, both in zip(ages, twins, strict=True)]
    age = np.array([of_lag.mean() for of_lag in of_lags])
    first, own = pairs.first[pairs.later], np.arange(len(pairs.model))[pairs.later]
    tested_later = bool(((first >= 0) & (first != own)).any())  # a model has tests at the base lag and later
    return Ageing(
        timeline=times,
        lags=pairs.lags,
        base=base,
        curve=_curve(pairs, bands, by_test, places),
        half_life=decay.half_life_of(numbers["left"], age[base:], tested_later),
        older=bands["older"],
        chance=float(np.nanmean(_chance(n, constant)[pairs.later])) if base < len(pairs.lags) else np.nan,
        chance_by="training" if stated else "tests",
        seeds=tuple(int(run.about["seed"]) for run in runs),
        clustered=draws.resampling.groups is not None,
    )


def _numbers(pairs: decay.Pairs, of: Sums, constant: decay.Ints, places: decay.Ints) -> dict[str, Drawn]:
    """All numbers of one learner, with other samples and seeds."""

    def numbers(right: Array, n: Array) -> dict[str, Array]:
        r, r_of = share(right.sum(-1), n.sum(-1)), np.moveaxis(share(right, n), -1, -2)
        return {
            "curve": decay.on_same(r, places),
            "curve_of": decay.on_same(r_of, places),
            "loss": -decay.slope(r, pairs, pairs.tested),
            "left": decay.left_over(r, _chance(n, constant), pairs),
            "older": pairs.means((decay.at(r, pairs.twin) - r)[..., pairs.later], pairs.base),
        }

    return drawn(numbers, of)


def _shown(pairs: decay.Pairs) -> decay.Ints:
    """(K,) pairs at each lag from the base lag on; tests, where not all lags have a pair."""
    counted = pairs.twin[pairs.later] >= 0
    return pairs.totals(counted if pairs.twins else counted | True, pairs.base).astype(np.int64)


def _curve(pairs: decay.Pairs, bands: dict[str, Band], by_test: bool, places: decay.Ints) -> decay.Curve:
    times = pairs.age[places] if len(places) else np.full((1, places.shape[1]), np.nan)
    return decay.Curve(
        age=times.mean(0),
        youngest=times.min(0),
        oldest=times.max(0),
        tested=pairs.tested[places[:, 0]] if by_test and places.size else np.zeros(0, np.int64),
        accuracy=bands["curve"].of_share(),
        accuracy_of=bands["curve_of"].of_share(),
        loss=bands["loss"],
    )


def _chance(n: Array, constant: decay.Ints) -> Array:
    """n (..., M, C), constant (M,) → (..., M) share of the samples of that class."""
    width = n.shape[-1]
    right = n[..., np.arange(len(constant)), np.minimum(constant, width - 1)]
    return share(np.where(constant < width, right, 0), n.sum(-1))
