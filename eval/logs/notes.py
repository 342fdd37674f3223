"""What a reader must know before the numbers of a log: sentences about its rows, labels and periods."""

from collections.abc import Mapping

import numpy as np

from driftline.eval.logs.cells import LEAST, Cells
from driftline.eval.logs.periods import Periods
from driftline.eval.logs.reading import NONE, UNTIMED, Log
from driftline.eval.logs.versions import Version

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
    "weighted": "Labels were chosen by confidence: cells are weighted to the scores of all rows.",
    "only": "Labels were chosen by confidence: all numbers are of the labelled rows only, and no alarm fires.",
}


def notes_of(log: Log, stated: Mapping[str, Version], cells: Cells, periods: Periods) -> list[str]:
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
    if since := [name for name in log.versions if stated.get(name, Version(name)).trained_to is None]:
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
