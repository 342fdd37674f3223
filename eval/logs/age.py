"""How accuracy of the versions in a log changes: everything that `driftline age` says, as one value."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from driftline.curate.core.errors import BadInput
from driftline.curate.core.seeding import rng_for
from driftline.curate.foreign.time_cells import span
from driftline.eval.logs import trend
from driftline.eval.logs.cells import DAY, LEAST, Cells, Ints, Periods, cells_of, periods_of
from driftline.eval.logs.columns import read_versions
from driftline.eval.logs.reading import LATER, NONE, UNTIMED, Log, read_log
from driftline.eval.logs.trend import Curve, Line, Split, Stale, by_age, half_life, line, split, staleness
from driftline.eval.scoring.bands import Band, Floats, Z
from driftline.eval.scoring.decay import HalfLife

UNITS = ("year", "month", "week", "day")
FEWEST = 4  # periods of the unit that is chosen
CONSTANT = 0.95  # share of one label above which accuracy says little
SEASONS = 2 * 365  # days from which on a season is seen to come back
NAMED = 5
DROPPED = {
    "duplicates": "{} rows repeat an id of the same version: the last row counts.",
    "no_time": "{} rows without a time are not used.",
    "no_id": "{} rows without an id are not used.",
    "no_version": "{} rows without a version are not used.",
    "no_prediction": "{} rows without a prediction are not used.",
    "unknown_ids": "{} ids of the labels are not in the log.",
}
CHOSEN = {
    "weighted": "Labels were chosen by confidence: cells are weighted to the scores of all predictions.",
    "only": "Labels were chosen by confidence: all numbers are of labelled predictions only, and no alarm fires.",
}
HORIZON = 3  # periods after the last one of the log
STARTS = 3  # versions from which on their starts have a trend


@dataclass(frozen=True)
class Ahead:
    """One version in one period to come, or whose labels are still to come."""

    version: int
    period: int
    lag: int
    value: float
    low: float
    high: float
    extrapolated: bool
    """whether no version was tested at this age"""


@dataclass(frozen=True)
class Advice:
    """Whether to train a new version now."""

    retrain: bool | None
    """None: not known"""
    payback: float | None
    """periods until what it saves is what it costs"""
    gain: Band | None
    """() accuracy that a new version has more in the next period"""
    because: str


def forecast(cells: Cells, fit: Line, periods: int) -> list[Ahead]:
    """Of the versions in the last complete period, up to `HORIZON` periods after the log, by the line; [] with too few
    cells, or labels of the labelled rows only. The interval is of what a cell of average size will show."""
    use = cells.usable
    if cells.labels == "only" or fit.free < trend.FREE or not np.isfinite(fit.slope.value):
        return []
    last, longest = int(cells.period[use].max()), int(cells.lag[use].max())
    of = use & (cells.period == last)
    lags = dict(zip(cells.version[of].tolist(), cells.lag[of].tolist(), strict=True))
    coming = range(last + 1, max(periods - 1, last) + HORIZON + 1)
    asked = [(version, period, lag + period - last) for period in coming for version, lag in lags.items()]
    values, weights = zip(*(fit.at(version, age) for version, _, age in asked), strict=True)
    value = np.array(values)
    of_labels = np.maximum(value * (1 - value), 0) * float((1 / cells.labelled[use]).mean())
    low, high = _ends(cells, fit, np.stack(weights), np.array([period for _, period, _ in asked]), of_labels)
    ends = np.clip([value, np.minimum(low, value), np.maximum(high, value)], 0, 1).T.tolist()
    return [
        Ahead(version, period, age, middle, lowest, highest, age > longest)
        for (version, period, age), (middle, lowest, highest) in zip(asked, ends, strict=True)
    ]


def _ends(cells: Cells, fit: Line, weights: Floats, periods: Ints, of_labels: Floats) -> tuple[Floats, Floats]:
    """Ends (J,) of the interval of what cells of periods (J,) will show, with such variances by their labels. weights
    (J, K) @ cells: by the line. What was special to the last periods goes on as far as periods are alike: a fall that
    slows down leaves the line."""
    use, scatter, means, variances = cells.usable, fit.scatter, [], []
    fitted = [fit.at(*at)[1] for at in zip(cells.version[use].tolist(), cells.lag[use].tolist(), strict=True)]
    rest = np.eye(len(fitted)) - np.stack(fitted)
    for g, variance in enumerate(scatter.variance.tolist()):
        covariance, shared = scatter.covariance(g), scatter.shared(g, periods)
        best = weights + np.linalg.solve(covariance, shared).T @ rest
        means.append(best @ cells.accuracy[use])
        apart = (best @ covariance * best).sum(1) - 2 * (best * shared.T).sum(1)
        variances.append(apart + variance + of_labels)
    low, high = (scatter.end(np.stack(means), np.stack(variances), q) for q in (0.025, 0.975))
    return low, high


def advice(
    cells: Cells, fit: Line, trained: Sequence[int], ahead: list[Ahead], stale: Stale | None,
    costs: tuple[float, float] | None, unit: str,
) -> Advice:  # fmt: skip
    """costs: of one wrong answer, and of training a version, in one currency. unit: of periods.

    Nothing is advised unless an older version is shown to be behind a newer one. Payback: what training costs over what
    it saves in one period: errors of so many predictions [alpha = c / (e N), Regol et al. 2025, eq. 3]."""
    if not ahead:
        return Advice(None, None, None, "Nothing can be forecast, and so nothing is advised.")
    use = np.flatnonzero(cells.usable)
    young = use[cells.lag[use] == cells.lag[use].min()]  # of the youngest age that any version was tested at
    if stale is None or not stale.shown:
        because = (
            f"Whether training again helps is not known: no older version is shown behind a newer one in one {unit}."
        )
        order = young[np.argsort([trained[int(v)] for v in cells.version[young]], kind="stable")][-6:]
        starts = ", ".join(f"{100 * one:.1f}" for one in cells.accuracy[order])
        return Advice(None, None, None, because + (f" Versions started at {starts} %." if len(order) > 1 else ""))
    if len(young) < 2:
        because = "Only one version was tested when as young: what a new one would reach is not known."
        return Advice(None, None, None, because)
    newest = max((one for one in ahead if one.period == ahead[0].period), key=lambda one: (-one.lag, one.version))
    band = _gain(cells, fit, trained, young, newest)
    gain = float(band.value)
    gained, low, high = (f"{100 * float(end):+.1f}".replace("-", "−") for end in (band.value, band.low, band.high))
    points = f"A new version would gain {gained} points ({low} to {high})"
    if costs is None:
        return Advice(None, None, band, f"{points}; no costs were given.")
    of = cells.usable & (cells.version == newest.version)
    payback = costs[1] / (costs[0] * float(np.mean(cells.rows[of]))) / gain if gain > 0 and costs[0] > 0 else None
    if payback is None or band.low <= 0:
        return Advice(None, payback, band, f"{points}: whether it is better is not known.")
    pays = payback <= HORIZON
    verdict = f"training pays back in {payback:.1f} {unit}s, {'less' if pays else 'more'} than the forecast's {HORIZON}"
    return Advice(pays, payback, band, f"{points}: {verdict}.")


def _gain(cells: Cells, fit: Line, trained: Sequence[int], young: Ints, newest: Ahead) -> Band:
    """() what a version that starts in the period of a forecast has more. It starts at the mean of `young` cells, or on
    a line over the dates of versions where that has more than labels explain. Levels of versions by all their cells say
    how much starts differ; it is at least what labels say."""
    y, versions = cells.accuracy[young], cells.version[young].tolist()
    own = [fit.at(v, float(cells.lag[young[0]])) for v in versions]
    level = np.array([value for value, _ in own])
    labels = float(np.mean([weights**2 @ fit.scatter.of_labels for _, weights in own]))
    x = np.array([trained[v] for v in versions], np.float64)
    m, centred = len(y), x - x.mean()
    squares = float(centred @ centred)
    along, free, far = np.zeros(m), m - 1, 1 + 1 / m
    if m >= STARTS and squares and abs(centred @ level) > Z * (labels * squares) ** 0.5:
        along, free, far = centred / squares, m - 2, far + (newest.period - x.mean()) ** 2 / squares
    rest = level - level.mean() - centred * float(along @ level)
    start = float(y.mean() + (newest.period - x.mean()) * (along @ y))
    weights = fit.at(newest.version, newest.lag)[1]
    of_newest = (float(fit.scatter.halves(weights[None])[0]) / Z) ** 2
    spread = max(float(rest @ rest) / free, labels) * far
    half = trend.half_of(
        [(of_newest, math.inf), (float(trend.of_labels(cells)[young].mean()) / m, math.inf), (spread, free)]
    )
    return Band.around(start - newest.value, half)


@dataclass(frozen=True)
class Aged:
    """What a log says about ageing."""

    periods: Periods
    versions: tuple[str, ...]
    """of the log, in the order of `Cells.version`"""
    stated: Mapping[str, int | None]
    """version → last second of its training data, UTC; None, or none: not known"""
    trained: tuple[int, ...]
    """number of the period in which each one's training data ends; below 0: before the log"""
    cells: Cells
    fit: Line
    slope: Band
    """() change of accuracy per period; without interval where labels speak of labelled rows only"""
    fixed_slope: Band
    """() the same at one mix of classes and groups"""
    curve: Curve
    stale: Stale | None
    half_life: HalfLife | None
    """in periods; None unless staleness is shown"""
    split: Split | None
    split_because: str
    ahead: list[Ahead]
    advice: Advice
    counts: dict[str, int]
    notes: tuple[str, ...]
    """what a reader must know before the numbers"""

    def age_days(self, version: int, period: int) -> int:
        """Days from the period in which the training data ends to another one."""
        return round((self.periods.start(period) - self.periods.start(self.trained[version])) / DAY)

    @property
    def days_a_period(self) -> float:
        """On average."""
        return self.periods.days / len(self.periods)

    @classmethod
    def of(
        cls, log: Any, *, versions: Any = None, labels: Any = (), columns: Mapping[str, str] | None = None,
        period: str | int = "auto", until: str | int | None = None, cost_error: float | None = None,
        cost_retrain: float | None = None,
    ) -> Self:  # fmt: skip
        """How fast accuracy of a model in service falls, from its log.

        log, labels: one or several files (Parquet, CSV, JSON lines), data frames, Arrow tables, rows, or columns by
        name, as `read_log` has them. versions: as `read_versions` has them, or names with the dates to which they are
        trained. period: month, week, day, year, a number of parts, or auto: the longest of month, week and day of which
        the log has four; year where most months lack ten labels. until: a date; what came later is not used.
        cost_error, cost_retrain: of one wrong answer and of one training, in one currency.

        Raises MissingFile, BadInput and BadConfig.
        """
        costs = _costs(cost_error, cost_retrain)
        try:
            end = None if until is None else span(until)[1]
        except (ValueError, OverflowError):
            raise BadInput(f"--until is {until!r}.", "Expected a date, such as 2026-07-01.") from None
        log = read_log(several(log), columns, several(labels), end)
        stated = {} if versions is None else read_versions(versions)
        cut = periods_of(log.time, _unit(log) if period == "auto" else period)
        dates = {}  # of training, else of the first prediction
        for v in np.flatnonzero(np.bincount(log.version)).tolist():
            date = stated.get(log.versions[v])
            dates[v] = int(log.time[log.version == v].min()) if date is None else date
        order = sorted(dates, key=lambda v: (dates[v], log.versions[v]))  # others have no row that counts
        place = np.zeros(len(log.versions), np.int32)
        place[order] = np.arange(len(order))
        log.version, log.versions = place[log.version], [log.versions[v] for v in order]
        trained = cut.number(np.array([dates[v] for v in order], np.int64))
        timed = (log.label_time != LATER) & (log.label_time != UNTIMED)
        now = end if end is not None else int(max(log.time.max(), log.label_time[timed].max(initial=log.time[0])))
        cells = cells_of(log, cut, trained, now)
        use = cells.usable
        if not use.any():
            known = f"{log.counts['labelled']:,} of {len(log):,} predictions have a label."
            expected = f"Expected {LEAST} labels at least in one period, after the version's training."
            way_out = "Give late labels with --labels FILE, or a longer --period."
            raise BadInput(f"No version has {LEAST} labels in a complete period: {known}", expected, way_out)
        of = (cells.version[use], cells.period[use], cells.lag[use])
        fit, fixed = (line(*of, values[use], cells.effective[use]) for values in (cells.accuracy, cells.fixed))
        slopes = [fit.slope, fixed.slope]
        if cells.labels == "only":
            slopes = [Band(one.value, *[np.array(math.nan)] * 2) for one in slopes]
        curve, ahead, stale = by_age(cells, fit), forecast(cells, fit, len(cut)), staleness(cells, trained.tolist())
        half = half_life(cells, curve, fit, rng_for(0, "age")) if stale is not None and stale.shown else None
        advised = advice(cells, fit, trained.tolist(), ahead, stale, costs, cut.unit)
        return cls(
            cut, tuple(log.versions), stated, tuple(trained.tolist()), cells, fit, slopes[0], slopes[1], curve, stale,
            half, *split(cells), ahead, advised, _counts(log, cells), tuple(notes_of(log, stated, cells, cut)),
        )  # fmt: skip


def several(sources: Any) -> list[Any]:
    """One source, or a list of them; a list of rows is one."""
    if isinstance(sources, list | tuple):
        rows = all(isinstance(one, Mapping) for one in sources) and len(sources) > 0
        return [list(sources)] if rows else list(sources)
    return [sources]


def _costs(error: float | None, retrain: float | None) -> tuple[float, float] | None:
    for name, cost in (("--cost-error", error), ("--cost-retrain", retrain)):
        if cost is not None and not (math.isfinite(cost) and cost >= 0):
            raise BadInput(f"{name} is {cost}.", "Expected a number from 0.")
    if error is None and retrain is None:
        return None
    if error is None or retrain is None:
        raise BadInput("Only one of --cost-error and --cost-retrain was given.", "Expected both, or none.")
    return error, retrain


def _unit(log: Log) -> str:
    """The longest of which the log has four; years only where cells with enough labels are fewer than half of the
    months between the first label and the last."""
    units = [unit for unit in UNITS[:-1] if len(periods_of(log.time, unit)) >= FEWEST] + [UNITS[-1]]
    if units[0] != UNITS[0]:
        return units[0]
    months, there = periods_of(log.time, units[1]), log.label != NONE
    if not there.any():
        return units[1]
    month = months.number(log.time[there])
    counts = np.bincount(log.version[there] * len(months) + month)
    return units[int(2 * (counts >= LEAST).sum() > np.ptp(month))]


def _counts(log: Log, cells: Cells) -> dict[str, int]:
    pending = int((cells.rows - cells.labelled)[cells.pending].sum())
    more = {name: n for name, n in sorted(log.counts.items()) if name not in ("read", "labelled", "duplicates")}
    first = {"read": log.counts["read"], "labelled": log.counts["labelled"], "pending": pending}
    return {**first, "duplicates": log.counts["duplicates"], **more}


def notes_of(log: Log, stated: Mapping[str, int | None], cells: Cells, periods: Periods) -> list[str]:
    """The sentences, what changes the meaning of numbers first."""
    notes = [*log.notes, CHOSEN[cells.labels]] if cells.labels else [*log.notes]
    waiting = len(np.unique(cells.period[cells.pending]))
    if cells.late and waiting:
        other = "right" if cells.late == "wrong" else "wrong"
        notes.append(f"Labels of {cells.late} answers come later than those of {other} ones: the last "
                     f"{_periods(waiting, periods)} not complete.")  # fmt: skip
    elif waiting:
        notes.append(f"Labels of the last {_periods(waiting, periods)} still to come: not compared with others.")
    if one_season(periods):
        notes.append("The log spans less than two years: a season cannot be excluded.")
    if since := [name for name in log.versions if stated.get(name) is None]:
        names = ", ".join(since)
        notes.append(f"No date of training is known of {names}: age counts from the first prediction.")
    if unused := sorted(set(stated) - set(log.versions)):
        notes.append(f"The log has no prediction of {', '.join(unused)}.")
    notes += [text.format(f"{log.counts[name]:,}") for name, text in DROPPED.items() if log.counts[name]]
    if n := int(cells.rows[cells.lag < 0].sum()):
        notes.append(f"{n:,} predictions are older than the training data of their version: they are not used.")
    few = ~cells.pending & (cells.lag >= 0) & np.isnan(cells.accuracy)
    if few.any():
        notes.append(f"Cells without a number, because they have fewer than {LEAST} labels: {int(few.sum())}.")
    if (log.label_time == UNTIMED).any() and log.counts["labelled"] < len(log):
        notes.append("Labels have no times (label_time): how late they come is not known.")
    return [*notes, *_classes(log)]


def one_season(periods: Periods) -> bool:
    """Whether a log is too short to show that a season comes back."""
    return periods.days < SEASONS


def _periods(n: int, periods: Periods) -> str:
    return f"{periods.unit} is" if n == 1 else f"{n} {periods.unit}s are"


def _classes(log: Log) -> list[str]:
    """What the most frequent label alone would reach, where the model is hardly above it; classes that are never a
    label."""
    there, notes = log.label != NONE, []
    count = np.bincount(log.label[there])
    most, accuracy = count.max() / count.sum(), float((log.prediction == log.label)[there].mean())
    if len(log.classes) > 1 and most >= min(accuracy, CONSTANT):
        name = log.classes[int(count.argmax())]
        notes.append(f"Always answering {name} would be right in {100 * most:.1f} %, the model is in "
                     f"{100 * accuracy:.1f} %: look at the classes one by one.")  # fmt: skip
    answered, labelled = (np.zeros(len(log.classes) + 1, bool) for _ in range(2))  # the last one: `NONE`
    answered[log.prediction], labelled[log.label] = True, True
    names = [log.classes[c] for c in np.flatnonzero((answered & ~labelled)[:-1]).tolist()]
    more = [f"and {len(names) - NAMED} more"] if len(names) > NAMED else []
    if names:
        notes.append(f"Classes that were answered and are never a label: {', '.join(names[:NAMED] + more)}.")
    return notes
