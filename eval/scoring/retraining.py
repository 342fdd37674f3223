"""What follows from the matrix beside ageing: how often to bring a new model, and whether the data became harder. And
how little ageing a stream can show, before anything is trained."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from driftline.curate.core.seeding import rng_for
from driftline.eval.rows import Run
from driftline.eval.rows import groups as by_settings
from driftline.eval.scoring import net
from driftline.eval.scoring.bands import Array, Band, Floats, interval
from driftline.eval.timeline import record
from driftline.stream_builder.stream import Stream

EVERY = (1, 2, 4)  # steps
DIFFER = 0.1  # variance of right answers that only one of two models of a method has, with that of the control
ALIKE = 0.35  # correlation of it within a group
SURE = 2.8  # standard errors: found in 80 % of cases, with intervals of 95 %
LEAST = 3  # steps


@dataclass(frozen=True)
class Cadence:
    """A new model every few steps."""

    every: int
    """steps between new models; 1: the model of each step is used"""
    accuracy: Band
    """() mean over the same tests for all cadences, and over the steps at which the first model may come"""
    behind: Band
    """() by how much that is below a new model at each step, on the same tests; 0 for every = 1"""
    trainings: float
    """new models a step: 1 / every"""
    seconds: float
    """processor time a step, if a model takes as long as a step of the run"""


def newest_models(tested: Array) -> Array:
    """(T, T) whether a model of a step (row) has a test on a step → (T,) the newest up to that step; -1: none."""
    return np.array([max(np.flatnonzero(tested[: j + 1, j]).tolist(), default=-1) for j in range(len(tested))])


def retrain_every(runs: Sequence[Run], groups: Array | None, every: Sequence[int] = EVERY) -> list[Cadence]:
    """What one learner reaches with a new model every 1, 2, 4 steps; [] under other protocols, and for one that never
    learned again. runs: of all its seeds. groups: (N,) cluster of each sample by position; None: each is its own."""
    about = runs[0].about
    if about["protocol"] not in net.PROTOCOLS:
        return []
    tested = ~np.isnan(np.mean([net.matrix_of(run) for run in runs], 0))
    newest = newest_models(tested)
    first = int(np.argmax(newest >= 0))
    every = [k for k in every if k <= max(1, (len(tested) - first) // 2)]
    models = {row.last_change for run in runs for row in run.rows if row.learned_to >= 0}
    tests = [j for j in range(first + max(every) - 1, len(tested)) if newest[j] >= max(every) - 1]
    if len(models) < 2 or not tests:
        return []
    fresh = np.zeros(tested.shape)
    fresh[newest[tests], tests] = 1 / len(tests)
    seconds = float(np.mean([run.about["seconds"] for run in runs])) / len(tested)
    weights = np.zeros((len(every), *tested.shape))
    for of, k in zip(weights, every, strict=True):
        for age in range(k):
            of[newest[tests] - age, tests] += 1 / k / len(tests)
    totals = net.over_samples(runs, np.concatenate([weights, fresh - weights]), groups)
    bands = [interval(total.value, total.parts)[0] for total in totals]
    found = zip(every, bands, bands[len(every) :], strict=False)
    return [Cadence(k, reached.of_share(), lost, 1 / k, seconds / k) for k, reached, lost in found]


def harder_data(runs: Sequence[Run], control: net.Control, groups: Array | None) -> Band | None:
    """Points of accuracy a year that the best newest models fall, less what they fall where nothing changes: one number
    for all learners of a protocol and stream; None without dates or control. runs: of all learners. The best are chosen
    on each half of the clusters, and measured on the other."""
    learners = [(group, draws) for group in by_settings(runs) if group[0].about["protocol"] in net.PROTOCOLS
                and group[0].about.get("standing") != "bound"
                and len(draws := net.draws_of(group, control)["within"]) > 1]  # fmt: skip
    years = net.years_of(runs[0].about) if learners else None
    rows = [row for group, _ in learners for run in group for row in run.rows]  # seeds may test other samples
    samples = [row.answers.sample for row in rows if row.answers is not None]
    if years is None or not samples:
        return None
    newest = newest_models(~np.isnan(net.matrix_of(learners[0][0][0])))
    tests = np.flatnonzero(newest >= 0)
    mean, slope = np.zeros((2, len(newest), len(newest)))
    mean[newest[tests], tests] = 1 / len(tests)
    ages = np.maximum(years[tests][None, :] - years[tests][:, None], 0)  # of all pairs: Σ age · fall / Σ age²
    slope[newest[tests], tests] = 100 * (ages.sum(1) - ages.sum(0)) / (ages**2).sum()
    positions = np.unique(np.concatenate(samples))
    clusters = positions if groups is None else groups[positions]
    half = np.zeros(int(clusters.max()) + 1, np.int64)
    half[np.unique(clusters)] = rng_for(0, "halves").permutation(np.arange(len(np.unique(clusters))) % 2)
    sums, falls = list[net.Sum](), list[Floats]()
    for part in (0, 1):
        reached = [net.over_samples(group, mean[None], groups, half == part)[0].value for group, _ in learners]
        group, draws = learners[int(np.argmax(reached))]
        sums += net.over_samples(group, slope[None], groups, half != part)
        falls.append(np.array([float(np.nansum(slope * draw.matrix)) for draw in draws]))
    count = min(map(len, falls))
    of_draws = np.mean([fall[:count] for fall in falls], 0)
    spread = float(np.var(of_draws, ddof=1)) * (1 + 1 / count)
    of_samples = (sum(one.variance for one in sums) / 4, min(one.free for one in sums))
    parts = [of_samples, (spread, count - 1)]
    value = float(np.mean([one.value for one in sums]) - of_draws.mean())
    return interval(value, parts)[0]


@dataclass(frozen=True)
class Power:
    """The smallest ageing that a stream shows in 80 % of cases."""

    points_per_year: float
    """net loss, points of accuracy"""
    tests: int
    """test samples of a step, median"""
    groups: int
    """their groups (uploaders, near-duplicates), median; samples where groups are not known"""

    def text(self) -> str:
        """As a sentence."""
        groups = f", {self.groups:,} groups" if self.groups != self.tests else ""
        least = f"ageing below {self.points_per_year:.1f} points per year cannot be measured"
        return f"with {self.tests:,} tests{groups} a step, {least} (a method with 80 % right answers)"


def smallest_ageing(stream: Stream) -> Power | None:
    """Of clear-iid and 20 draws of the control; None without dates, tests in every step, or three steps.

    The loss per year is a sum over tested steps of mean differences between models. Each has the variance `DIFFER`,
    groups of s samples 1 + (s − 1) · `ALIKE` times that of single ones; both are of simulated streams."""
    steps = stream.steps
    years = net.years_of({"steps": len(steps), "timeline": record(stream)})
    if years is None or len(steps) < LEAST or not all(step.splits.get("test") for step in steps):
        return None
    pairs = net.pairs_of(np.ones((len(steps), len(steps)), bool), years)
    of_step = np.bincount(pairs.test, pairs.weight, len(steps))
    variance, tests, groups = 0.0, [], []
    for weight, step in zip(of_step, steps, strict=True):
        test = step["test"]
        sizes = np.unique(np.arange(len(test)) if test.group is None else test.group, return_counts=True)[1]
        variance += DIFFER * weight**2 * float((sizes * (1 + (sizes - 1) * ALIKE)).sum()) / len(test) ** 2
        tests.append(len(test))
        groups.append(len(sizes))
    return Power(100 * SURE * float(np.sqrt(variance)), int(median(tests)), int(median(groups)))
