"""How the versions in a log age: everything that `driftline age` says, as one value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from driftline.curate.core.errors import BadInput
from driftline.curate.core.seeding import rng_for
from driftline.curate.core.times.dates import last_second, precision_of, seconds_of
from driftline.eval.service_log.causes import Split, split
from driftline.eval.service_log.cells import DENSE, LEAST, Cells, cells_of, rows_of_cells
from driftline.eval.service_log.forecast import Advice, Ahead, advice, forecast
from driftline.eval.service_log.lost import Lost, lost_of
from driftline.eval.service_log.parts import Confidence, Part, confidence_of, parts_of
from driftline.eval.service_log.periods import DAY, Periods, periods_of
from driftline.eval.service_log.reading import LATER, NONE, UNTIMED, Log, read_log
from driftline.eval.service_log.trend import Decay, Line, decay, line
from driftline.eval.service_log.versions import Version, read_versions

UNITS = ("year", "month", "week", "day")
CONSTANT = 0.95  # share of one label above which accuracy says little
FEWEST = 4  # periods of the unit that is chosen


@dataclass(frozen=True)
class Aged:
    """What a log says about ageing."""

    periods: Periods
    versions: tuple[Version, ...]
    """of the log, in the order of `Cells.version`"""
    trained: tuple[int, ...]
    """number of the period in which each one's training data ends; below 0: before the log"""
    cells: Cells
    fit: Line
    decay: Decay
    split: Split | None
    split_because: str
    ahead: list[Ahead]
    advice: Advice
    classes: list[Part]
    groups: list[Part]
    confidence: list[Confidence]
    lost: Lost | None
    counts: dict[str, int]
    notes: tuple[str, ...]
    """what a reader must know before the numbers"""
    source: Log

    def start_of(self, period: int) -> int:
        """The first second of a period, seconds UTC."""
        return self.periods.start(period)

    def age_days(self, version: int, period: int) -> int:
        """Days from the period in which the training data ends to another one."""
        return round((self.start_of(period) - self.start_of(self.trained[version])) / DAY)

    @property
    def days_a_period(self) -> float:
        """On average."""
        return float(np.diff(self.periods.borders).mean()) / DAY


def aged(
    log: Any,
    *,
    versions: Any = None,
    labels: Any = (),
    columns: Mapping[str, str] | None = None,
    period: str | int = "auto",
    until: str | int | None = None,
    cost_error: float | None = None,
    cost_retrain: float | None = None,
    seed: int = 0,
) -> Aged:
    """How fast a model in service ages, from its log.

    log, labels: one or several files (Parquet, CSV, JSON lines), data frames, Arrow tables, rows, or columns by name,
    as `read_log` has them. versions: as `read_versions` has them. period: month, week, day, year, a number of parts, or
    auto: the longest of month, week and day of which the log has four; year where most months lack ten labels.
    until: a date; what came later is not used.
    cost_error, cost_retrain: of one wrong answer and of one training, in one currency.

    Raises MissingFile, BadInput and BadConfig.
    """
    for name, cost in (("--cost-error", cost_error), ("--cost-retrain", cost_retrain)):
        if cost is not None and not (math.isfinite(cost) and cost >= 0):
            raise BadInput(f"{name} is {cost}.", "Expected a number from 0.")
    if (cost_error is None) != (cost_retrain is None):
        raise BadInput("Only one of --cost-error and --cost-retrain was given.", "Expected both, or none.")
    end = None if until is None else _moment(until)
    sources = several(log)
    log = read_log(sources, columns, several(labels), end)
    stated = {} if versions is None else read_versions(versions)
    cut = periods_of(log.time, _unit(log) if period == "auto" else period)
    dates = [_trained(log, stated, v) for v in range(len(log.versions))]
    order = sorted(range(len(dates)), key=lambda v: (dates[v], log.versions[v]))
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order))
    log.version, log.versions = place[log.version], [log.versions[v] for v in order]
    trained = cut.number(np.array(dates, np.int64)[order])
    timed = (log.label_time != LATER) & (log.label_time != UNTIMED)
    now = end if end is not None else int(max(log.time.max(), log.label_time[timed].max(initial=log.time[0])))
    cells = cells_of(log, cut, trained, now)
    use = cells.usable
    if not use.any():
        raise BadInput(
            f"No version has {LEAST} labels in a complete period: {log.counts['labelled']:,} of {len(log):,} "
            "predictions have a label.",
            f"Expected {LEAST} labels at least in one period, after the version's training.",
            "Give late labels with --labels FILE, or a longer --period.",
        )
    fit = line(cells.version[use], cells.period[use], cells.lag[use], cells.accuracy[use], cells.effective[use])
    rng = rng_for(seed, "age")
    ahead = forecast(cells, fit, len(cut))
    causes, because = split(cells)
    since_first = tuple(name for name in log.versions if stated.get(name, Version(name)).trained_to is None)
    return Aged(
        cut, tuple(stated.get(name, Version(name)) for name in log.versions), tuple(trained.tolist()),
        cells, fit, decay(cells, fit, rng), causes, because, ahead,
        advice(cells, fit, ahead, cost_error, cost_retrain, cut.unit),
        parts_of(log, cells, log.label, log.classes), parts_of(log, cells, log.group, log.groups),
        confidence_of(log, cells), lost_of(log, cells, rows_of_cells(cells), sources, columns or {}),
        _counts(log, cells),
        tuple(_notes(log, stated, cells, since_first)), log,
    )  # fmt: skip


def several(sources: Any) -> list[Any]:
    """One source, or a list of them; a list of rows is one."""
    if isinstance(sources, list | tuple):
        rows = all(isinstance(one, Mapping) for one in sources) and len(sources) > 0
        return [list(sources)] if rows else list(sources)
    return [sources]


def _moment(until: str | int) -> int:
    try:
        return last_second(seconds_of(until), precision_of(until))
    except (ValueError, OverflowError):
        raise BadInput(f"--until is {until!r}.", "Expected a date, such as 2026-07-01.") from None


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


def _trained(log: Log, stated: Mapping[str, Version], version: int) -> int:
    """The date of training, else of the first prediction."""
    date = stated.get(log.versions[version], Version("")).trained_to
    return int(log.time[log.version == version].min()) if date is None else date


def _counts(log: Log, cells: Cells) -> dict[str, int]:
    pending = int((cells.rows - cells.labelled)[cells.pending].sum())
    more = {name: n for name, n in sorted(log.counts.items()) if name not in ("read", "labelled", "duplicates")}
    return {
        "read": log.counts["read"],
        "labelled": log.counts["labelled"],
        "pending": pending,
        "duplicates": log.counts["duplicates"],
        **more,
    }


def _notes(log: Log, stated: Mapping[str, Version], cells: Cells, since_first: Sequence[str]) -> list[str]:
    notes = []
    if since_first:
        names = ", ".join(since_first)
        notes.append(
            f"No date of training is known of {names}: age counts from the first prediction, since deployment."
        )
    if unused := sorted(set(stated) - set(log.versions)):
        notes.append(f"The log has no prediction of {', '.join(unused)}.")
    if n := int(cells.rows[cells.lag < 0].sum()):
        notes.append(f"{n:,} predictions are older than the training data of their version: they are not used.")
    few = ~cells.pending & (cells.lag >= 0) & np.isnan(cells.accuracy)
    if few.any():
        notes.append(f"Cells without a number, because they have fewer than {LEAST} labels: {int(few.sum())}.")
    if cells.pending.any():
        periods = len(np.unique(cells.period[cells.pending]))
        notes.append(
            f"Periods whose labels are still to come: {periods}. Their early labels are not compared with others."
        )
    if (log.label_time == UNTIMED).any() and log.counts["labelled"] < len(log):
        notes.append("Labels have no times (label_time): how late they come is not known.")
    for what, count in (("classes", len(log.classes)), ("groups", len(log.groups))):
        if len(cells) * count > DENSE:
            notes.append(f"The {count:,} {what} are too many to be looked at one by one.")
    if constant := _constant(log):
        notes.append(constant)
    if never := _never_labelled(log):
        notes.append(f"Classes that were answered and are never a label: {', '.join(never)}.")
    return notes


def _constant(log: Log) -> str:
    """What the most frequent label alone would reach, where the model is hardly above it."""
    there = log.label != NONE
    count = np.bincount(log.label[there])
    share, accuracy = count.max() / count.sum(), float((log.prediction == log.label)[there].mean())
    if len(log.classes) < 2 or share < min(accuracy, CONSTANT):
        return ""
    name = log.classes[int(count.argmax())]
    return (
        f"Always answering {name} would be right in {100 * share:.1f} %, the model is in {100 * accuracy:.1f} %: "
        "look at the classes one by one."
    )


def _never_labelled(log: Log, most: int = 5) -> list[str]:
    answered, labelled = (np.zeros(len(log.classes) + 1, bool) for _ in range(2))  # the last one: `NONE`
    answered[log.prediction], labelled[log.label] = True, True
    names = [log.classes[c] for c in np.flatnonzero((answered & ~labelled)[:-1]).tolist()]
    return [*names[:most], f"and {len(names) - most} more"] if len(names) > most else names
