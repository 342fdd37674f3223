"""Net loss: what a model loses with age beyond what the same method loses where nothing can age.

D(i, j) = R[j, j] − R[i, j] is what a model of step i is behind a newer one on the same tests (where no step is tested
after it was learned: behind the newest one that is). The control is the same method on the same stream with visits
permuted in time (see `driftline.eval.visits`): within classes (D_within) and over all classes (D_all).
D = (D − D_within) ageing + (D_within − D_all) class mix + D_all more data.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from driftline.curate.core.atomic_io import read_json
from driftline.eval.protocol import stored_protocol
from driftline.eval.rows import CONTROL, Run
from driftline.eval.rows import groups as by_settings
from driftline.eval.scoring.bands import Array, Band, Floats, holm, interval
from driftline.eval.timeline import SECONDS, timeline

Is = Literal["ageing", "none", "not known"]
Kind = Literal["within", "all", "equal", "half"]
ALPHA = 0.05
LIMIT = 1.0  # points a year: less is no ageing that matters
GRID = 2.0**-30  # parts of a loss are multiples of it, so that they add up exactly
LOSS = "loss.json"  # beside a run of the control
PROTOCOLS = ("clear-iid", "clear-streaming")  # that say `ageing`
WITHOUT_CONTROL = "There is no control."


@dataclass(frozen=True)
class Loss:
    """A part of what models lose, in points of accuracy (0 … 100)."""

    by_age: Floats
    """(K,) mean over the pairs of each age"""
    per_year: float
    """Σ age · loss / Σ age² over all pairs"""


@dataclass(frozen=True)
class Net:
    """What one learner loses with age. K ages; the columns add up exactly: gross = ageing + mix + more_data."""

    is_: Is
    """"ageing": the interval of `points_per_year` is above 0; "none": its upper end is below 1; else "not known\""""
    points_per_year: Band | None
    """() net loss, points of accuracy a year, with its 95 % interval; None: there is no control, or it is not valid"""
    because: str
    """why, as a sentence"""
    draws: int
    """of the control that are there"""
    wanted: int
    """draws that were asked for; 0: there is no control"""
    age: Floats
    """(K,) mean age of each lag from 1 on, in years"""
    gross: Loss
    """behind newer models of the same method, on the same tests"""
    ageing: Loss
    """gross less what is lost with times permuted within classes; NaN without a control"""
    mix: Loss
    """of that, what is not lost with times permuted over all classes; 0 where the shares of classes hardly change"""
    more_data: Loss
    """the rest: what newer models gain by having seen more"""
    placebo: Floats
    """(draws,) net loss of each draw against the others, points a year: what chance makes"""
    p: float = np.nan
    """two-sided, of no net loss; NaN where it is not known"""
    equal_data: float | None = None
    """points a year lost by models that all learned equally many newest samples; None: not asked for"""

    def said(self) -> dict[str, Any]:
        """As `eval --json` has it."""
        band = self.points_per_year
        ends = None if band is None else {name: float(getattr(band, name)) for name in ("value", "low", "high")}
        return {"is": self.is_, "points_per_year": ends, "because": self.because}


@dataclass(frozen=True)
class Draw:
    """One run of the control."""

    kind: Kind
    """times permuted within classes, or over all; not permuted, but models learned equally many samples ("equal"), or
    half of the training visits"""
    draw: int
    """its number"""
    seed: int
    key: str
    """of the run whose control it is (`key_of`)"""
    matrix: Floats
    """(T, T) accuracies"""
    variance: float
    """of points a year, over its test samples; NaN: not known"""


@dataclass(frozen=True)
class Control:
    """What there is of the control of one protocol and stream."""

    wanted: int = 0
    """draws; 0: none was asked for"""
    because: str = ""
    """why there is none; "": it is valid"""
    draws: Sequence[Draw] = field(default_factory=tuple)


NO_CONTROL = Control()


@dataclass(frozen=True)
class Pairs:
    """P pairs of an older model and the newest one that has a test on the same step."""

    old: Array
    """(P,) step of the older model"""
    new: Array
    """(P,) of the newer one"""
    test: Array
    """(P,) the tested step"""
    age: Floats
    """(P,) years between the models"""

    @property
    def weight(self) -> Floats:
        """(P,) of each pair in the loss per year."""
        return self.age / (self.age**2).sum()

    def loss(self, matrix: Floats) -> Floats:
        """(..., T, T) accuracies → (..., P) points lost."""
        return 100 * np.asarray(matrix[..., self.new, self.test] - matrix[..., self.old, self.test])

    def per_year(self, matrix: Floats) -> Floats:
        """(..., T, T) accuracies → (...) points a year."""
        return self.loss(matrix) @ self.weight

    def cells(self, steps: int) -> Floats:
        """(T, T) weight of each accuracy in the points per year."""
        out = np.zeros((steps, steps))
        np.add.at(out, (self.new, self.test), 100 * self.weight)
        np.add.at(out, (self.old, self.test), -100 * self.weight)
        return out


def pairs_of(tested: Array, years: Floats) -> Pairs:
    """tested: (T, T) whether a model of a step has a test on a step. years: (T,) when the steps are."""
    old, new, test = [], [], []
    for j in range(len(tested)):
        those = np.flatnonzero(tested[: j + 1, j]).tolist()
        old += those[:-1]
        new += those[-1:] * (len(those) - 1)
        test += [j] * (len(those) - 1)
    models, newest, tests = (np.array(column, np.int64) for column in (old, new, test))
    return Pairs(models, newest, tests, years[newest] - years[models])


def pairs_in(run: Run) -> Pairs:
    """Those of one run; ages in steps where these have no dates."""
    years = years_of(run.about)
    return pairs_of(~np.isnan(matrix_of(run)), np.arange(run.about["steps"]) * 1.0 if years is None else years)


def years_of(about: Mapping[str, Any]) -> Floats | None:
    """(T,) when the steps of a run's stream are, from the first on; None without dates, and within a month."""
    times = timeline(about)
    if times.unit == "steps" or times.dates[-1] - times.dates[0] < SECONDS["months"]:
        return None
    return (np.asarray(times.dates, np.float64) - times.dates[0]) / SECONDS["years"]


def matrix_of(run: Run) -> Floats:
    """(T, T) accuracies; row: trained up to this step, column: tested on this step; NaN: not tested."""
    step, steps = stored_protocol(run.about["protocol"]).roles.step, run.about["steps"]
    out = np.full((steps, steps), np.nan)
    for row in run.rows:
        if row.learned_to >= 0 and row.n and (j := step(row)) is not None:
            out[row.learned_to, j] = row.n_correct / row.n
    return out


def over_samples(runs: Sequence[Run], weights: Floats, groups: Array | None, part: Array | None = None) -> list["Sum"]:
    """For each of the weights (K, T, T) the sum of the accuracies (T, T) with them, mean over runs that differ in their
    seed, and its variance over clusters of test samples. groups: (N,) cluster of each sample by position; None: each is
    its own. part: (G,) the clusters that count. NaN where the samples of a run are not known."""
    step, used = stored_protocol(runs[0].about["protocol"]).roles.step, np.any(weights, axis=0)
    models = {int(j): np.flatnonzero(used[:, j]) for j in np.flatnonzero(used.any(0))}
    values, right = np.zeros((len(weights), len(runs))), dict[tuple[int, int], Array]()
    clusters: dict[tuple[int, int], tuple[Array, Any]] = {}  # of a step's tests, and which of them count
    for s, run in enumerate(runs):
        rows = {(row.learned_to, step(row)): row.answers for row in run.rows if row.learned_to >= 0}
        for j, those in models.items():
            answers = [one for i in those.tolist() if (one := rows.get((i, j))) is not None]
            if len(answers) < len(those):
                return [Sum(np.nan, np.nan, 0, np.full(len(runs), np.nan))] * len(weights)
            sample = answers[-1].sample
            if (key := (j, id(sample))) not in clusters:
                cluster = np.asarray(sample if groups is None else groups[sample])
                counts = slice(None) if part is None else part[cluster]
                clusters[key] = cluster[counts], counts
            if not len(clusters[key][0]):
                continue
            hits = np.stack([one.right for one in answers])[:, clusters[key][1]]
            values[:, s] += weights[:, those, j] @ hits.mean(1)
            right[key] = right.get(key, 0) + hits  # seeds that test the same samples are one sum
    if not right:
        return [Sum(0.0, 0.0, 0, one) for one in values]
    apart = []
    for key, hits in right.items():
        score, count = weights[:, models[key[0]], key[0]] @ hits, len(np.unique(clusters[key][0]))
        scale = np.sqrt(count / max(count - 1, 1)) / hits.shape[1] / len(runs)  # count: what the mean is from
        apart.append((score - score.mean(1, keepdims=True)) * scale)
    number = np.unique(np.concatenate([clusters[key][0] for key in right]), return_inverse=True)[1]
    totals = []
    for value, residuals in zip(values, np.concatenate(apart, 1), strict=True):
        squares = np.bincount(number, residuals) ** 2
        free = squares.sum() ** 2 / (squares**2).sum() if squares.any() else 0.0  # of large clusters, few count
        totals.append(Sum(float(np.mean(value)), float(squares.sum()), float(free), value))
    return totals


@dataclass(frozen=True)
class Sum:
    """A weighted sum of accuracies."""

    value: float
    variance: float
    """over other test samples"""
    free: float
    """its degrees of freedom"""
    of_seeds: Floats
    """(S,) the value of each run"""

    @property
    def parts(self) -> list[tuple[float, float]]:
        """Variances over other test samples, and of the mean over other seeds, with their degrees of freedom."""
        count = len(self.of_seeds)
        of_seeds = [(float(np.var(self.of_seeds, ddof=1)) / count, count - 1)] if count > 1 else []
        return [(self.variance, self.free), *of_seeds]


def key_of(about: Mapping[str, Any]) -> str:
    """What a run and its control have in common: learner, settings with those that were chosen, protocol, code."""
    settings = {key: value for key, value in about["settings"].items() if key != "tune"} | about.get("chosen", {})
    parts = [about["learner"], settings, about["protocol_settings"], about.get("code_of")]
    return json.dumps(parts, sort_keys=True, default=str)


def read_control(roots: Iterable[Path], protocol: str, sha256: str) -> Control:
    """What folders of `eval` hold of the control of a stream under a protocol."""
    wanted, because, draws = 0, "", []
    for root in sorted({root / CONTROL for root in roots}):
        for path in sorted(root.glob(f"*-{sha256[:12]}.json")):
            plan = read_json(path)
            if plan["protocol"] == protocol and plan["of"] == sha256:
                wanted, because = max(wanted, plan["wanted"]), because or plan["because"]
        for path in sorted(root.glob(f"*/*/*/{LOSS}")):
            stored = read_json(path)
            if stored.pop("protocol") == protocol and stored.pop("of") == sha256:
                matrix, variance = (np.array(stored.pop(name), np.float64) for name in ("matrix", "variance"))
                draws.append(Draw(**stored, matrix=matrix, variance=float(variance)))
    return Control(wanted, because, draws)


def draws_of(runs: Sequence[Run], control: Control) -> dict[str, list[Draw]]:
    """The draws of one learner by kind, in order of their numbers."""
    keys = {run.about["seed"]: key_of(run.about) for run in runs}
    by_number = {(one.kind, one.draw): one for one in reversed(control.draws) if keys.get(one.seed) == one.key}
    return {kind: [by_number[key] for key in sorted(by_number) if key[0] == kind] for kind in get_args(Kind)}


def net_of(runs: Sequence[Run], control: Control, groups: Array | None) -> Net | None:
    """What one learner loses with age; None under a protocol that has no ageing. runs: of all its seeds. groups: (N,)
    cluster of each sample by its position in the stream."""
    about, years = runs[0].about, years_of(runs[0].about)
    if about["protocol"] not in PROTOCOLS:
        return None
    pairs = pairs_in(runs[0])
    lags = pairs.new - pairs.old
    within, whole, equal, half = draws_of(runs, control).values()
    changes = {row.last_change for run in runs for row in run.rows if row.learned_to >= 0}

    def by_lag(values: Floats) -> Floats:
        return np.array([values[lags == lag].mean() for lag in np.unique(lags)])

    def loss(matrices: list[Floats]) -> Floats:
        if changes == {-1} or not len(lags) or not matrices:
            return np.full(len(np.unique(lags)) + 1, 0.0 if changes == {-1} else np.nan)
        lost = pairs.loss(np.mean(matrices, 0))
        whole = np.append(by_lag(lost), np.nan if years is None else lost @ pairs.weight)
        return np.asarray(np.round(whole / GRID) * GRID)  # sums and differences are exact

    gross, inside = loss([matrix_of(run) for run in runs]), loss([one.matrix for one in within])
    rest = loss([one.matrix for one in whole]) if whole else inside
    slopes, halves, equally = (
        np.array([float(pairs.per_year(one.matrix)) for one in draws if years is not None])
        for draws in (within, half, equal)
    )
    count = len(slopes)
    parts = [Loss(values[:-1], float(values[-1])) for values in (gross, gross - inside, inside - rest, rest)]
    net = Net(
        "not known", None, "", len(within), control.wanted, by_lag(pairs.age), parts[0], parts[1], parts[2], parts[3],
        (slopes - slopes.mean()) * count / (count - 1) if count > 1 else np.zeros(0),
        equal_data=float(equally.mean()) if len(equally) else None,
    )  # fmt: skip
    if changes == {-1}:
        return replace(net, is_="none", points_per_year=Band(*np.zeros((3,))), because="It never trained.", p=1.0)
    if because := _unknown(years, len(changes), len(set(pairs.test.tolist())), control, count, len(halves)):
        return replace(net, because=because)
    real = over_samples(runs, pairs.cells(about["steps"])[None], groups)[0]
    return _judged(net, real, slopes, halves, within)


def _unknown(years: Floats | None, models: int, tests: int, control: Control, count: int, halves: int) -> str:
    """Why nothing can be said, as a sentence; "": something can."""
    if years is None:
        return "The steps have no dates, or are within a month."
    if models < 2:
        return "It never learned again, so that no newer model of it is tested."
    if not tests:
        return "No step is tested by two models."
    if control.because:
        return control.because
    if not count:
        return WITHOUT_CONTROL
    if count < 2:
        return f"{count} of {control.wanted} permutations of its control are there."
    return "" if halves > 1 else "Its control has no models of half the training visits: evaluate again."


def _judged(net: Net, real: Sum, slopes: Floats, halves: Floats, draws: Sequence[Draw]) -> Net:
    """With the interval of the net loss, and what follows from it. slopes: (K,) points a year of the draws. halves: of
    models of half the training visits, which differ by as much as those of other training samples would.

    Var = V_test + max(0, s² − V̄_test) + s² / K + V_seed / S: other test samples; what other training samples and
    visits would change; the mean over K draws; other seeds. Of no net loss s² is the spread of the draws. Models that
    age are off their best, and other training samples change more: of the net loss that is found it is that of halves.
    """
    if np.isnan(real.variance):
        return replace(net, because="The answers to single test samples are not known here.")
    k, inside = len(slopes), float(np.nanmean([one.variance for one in draws]))
    spread, apart = (float(np.var(of, ddof=1)) for of in (slopes, halves))
    seeds = real.parts[1:] if k > len({one.seed for one in draws}) else []
    errors = []
    for other, free in ((spread, k - 1), (apart, len(halves) - 1)):
        parts = [real.parts[0], (spread / k, k - 1), *seeds]
        beyond = max(0.0, other - inside)
        errors.append(([*parts, (other * bool(beyond), free)], sum(part for part, _ in parts) + beyond))
    band, p = interval(float(real.value - slopes.mean()), *errors[0], errors[1])
    low, high = float(band.low), float(band.high)
    ends = f"The 95 % interval of its net loss, {low:.1f} to {high:.1f} points per year,"
    missing = f" ({net.draws} of {net.wanted} permutations are there)" * (net.draws < net.wanted)
    verdict: Is = "ageing" if low > 0 else "none" if high < LIMIT else "not known"
    why = {"ageing": f"is above 0{missing}", "none": f"ends below {LIMIT:.0f}{missing}",
           "not known": f"has 0 and {LIMIT:.0f} in it{missing}"}[verdict]  # fmt: skip
    return replace(net, is_=verdict, points_per_year=band, p=p, because=f"{ends} {why}.")


def holm_named(nets: Sequence[Net]) -> list[Net]:
    """Those that are named on one screen, together: "ageing" stays where it is significant after Holm over them."""
    out, count = list(nets), sum(np.isfinite(net.p) for net in nets)
    for k, p in enumerate(holm(np.array([net.p for net in nets], np.float64))):
        if nets[k].is_ == "ageing" and p > ALPHA:
            because = f"{nets[k].because} It may be chance, because {count} learners are named."
            out[k] = replace(nets[k], is_="not known", because=because)
    return out


def nets_of(runs: Sequence[Run], control: Control, groups: Array | None) -> list[Net | None]:
    """The net loss of each learner, in the order of `rows.groups`. groups: as for `net_of`."""
    return [net_of(group, control, groups) for group in by_settings(runs)]
