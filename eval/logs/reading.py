"""A log's files → arrays: one entry a prediction, the last one of an id and version, with the label that had come."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from driftline.curate.core.errors import BadInput
from driftline.curate.core.times.dates import iso
from driftline.curate.foreign import cells, time_cells
from driftline.curate.foreign.cells import NO_LABEL, NOTHING
from driftline.curate.foreign.delimited import Fault
from driftline.curate.foreign.time_cells import UNREADABLE, TimeColumn
from driftline.eval.logs.columns import BATCH, NEEDED, ROLES, named, opened

Array = npt.NDArray[Any]
LATER = np.iinfo(np.int64).max  # a time that has not come
UNREAD = LATER - 1  # a time that is stated and cannot be read
UNTIMED = np.iinfo(np.int64).min  # a label that is there, without a time
NONE = -1  # a text that is not there
FORMS = ("without a zone", "with a zone", "as a number")
LABEL_ROLES = ("id", "label", "label_time")
TIMES = ("time", "label_time")
CLASS_OF = {"prediction": "class", "label": "class"}
MANY = 32  # parts that become one
EMPTY = np.zeros(0, np.int64)
DAY = 86_400
SCALE = 20  # classes; a log with more that are mostly decimal numbers is of a regression
DECIMAL = re.compile(r"[+-]?\d*\.\d+(e[+-]?\d+)?", re.I)
FEW = 10  # labels from which on names of classes are compared
TEXTS = ("version", "prediction", "label", "group")
SPREAD, MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)  # numbers over 64 bits [splitmix64]


@dataclass
class Names:
    """Texts and their numbers, in the order in which they came."""

    number: dict[str, int] = field(default_factory=dict)
    nothing: cells.Nothing = field(default_factory=cells.Nothing)

    def codes(self, column: pa.ChunkedArray, name: str, role: str, row: int) -> npt.NDArray[np.int32]:
        """(N,) the number of each text; `NONE`: no text. Words for nothing may be names of classes."""
        words = ("",) if role in CLASS_OF else NOTHING
        if not pa.types.is_primitive(column.type) and column.type not in cells.TEXTS:
            column = cells.flat(column, name, row)
        coded = column.combine_chunks().dictionary_encode("encode")
        read = partial(cells.ids, name=name) if role == "group" else partial(cells.text, name=name, words=words)
        try:
            texts = read(pa.chunked_array([coded.dictionary]))
        except BadInput:
            read(column, row=row)  # names the row
            raise
        if role in ("label", "group"):
            times = np.bincount(coded.indices.to_numpy(), minlength=len(texts))
            self.nothing.add(f"the {role}", pa.chunked_array([coded.dictionary]), texts, times)
        texts = texts if role == "version" else cells.whole_numbers(texts)
        number = [
            NONE if text is None else self.number.setdefault(text, len(self.number)) for text in texts.to_pylist()
        ]
        return np.array(number, np.int32)[coded.indices.to_numpy()]

    def in_order(self, renamed: Mapping[str, str | None]) -> tuple[list[str], npt.NDArray[np.int32]]:
        """The texts, sorted, and the place of each number; behind them that of `NONE`. So the order of rows decides
        nothing. renamed: text → its name; None: it is nothing."""
        name_of = {text: renamed.get(text, text) for text in self.number}
        texts = sorted({name for name in name_of.values() if name is not None})
        of_name: dict[str | None, int] = {None: NONE} | {name: i for i, name in enumerate(texts)}
        return texts, np.array([*(of_name[name] for name in name_of.values()), NONE], np.int32)


@dataclass
class Files:
    """What files of one kind have in common: forms of their times, and the number of lines that are no rows."""

    names: Mapping[str, Names]
    forms: set[int] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    faults: int = 0


@dataclass
class Log:
    """N predictions in the order of the files."""

    time: npt.NDArray[np.int64]
    """(N,) of the prediction, seconds UTC"""
    id: npt.NDArray[np.uint64]
    """(N,) hash of the id"""
    version: npt.NDArray[np.int32]
    """(N,) number of the version"""
    prediction: npt.NDArray[np.int32]
    """(N,) number of the class"""
    label: npt.NDArray[np.int32]
    """(N,) number of the class; -1: none yet"""
    label_time: npt.NDArray[np.int64]
    """(N,) when the label came, seconds UTC; `LATER`: none yet, `UNTIMED`: not stated"""
    score: npt.NDArray[np.float32] | None
    """(N,) confidence of the answer, 0 … 1; NaN: not stated. None: no column"""
    group: npt.NDArray[np.int32] | None
    """(N,) number of the group, -1: none. None: no column"""
    versions: list[str]
    classes: list[str]
    groups: list[str]
    notes: list[str]
    """what of the files could not be read, or may be read in another way"""
    counts: Counter[str]
    """read, labelled, duplicates, unknown_ids (of labels), no_time, no_id, no_version, no_prediction, after_until"""

    def __len__(self) -> int:
        return len(self.time)

    def keep(self, chosen: Array, reason: str) -> None:
        """Keep some entries (N,), and count the others."""
        if gone := int(len(chosen) - np.count_nonzero(chosen)):
            self.counts[reason] += gone
            for name in ("time", "id", *TEXTS, "label_time", "score"):
                if (values := getattr(self, name)) is not None:
                    setattr(self, name, values[chosen])


def read_log(
    sources: Sequence[Any],
    columns: Mapping[str, str] | None = None,
    labels: Sequence[Any] = (),
    until: int | None = None,
) -> Log:
    """sources, labels: files (Parquet, CSV, JSON lines), data frames, Arrow tables, or columns by name. columns: role →
    column, of both. until: predictions and labels after this moment, seconds UTC, count as not yet there.

    Of several rows of one id and version the last one counts, of several labels of an id the latest. Rows without time,
    id, version or prediction are counted. Raises MissingFile, and BadInput naming file, column and value.
    """
    names = {role: Names() for role in ("version", "class", "group")}
    log = _predictions(sources, columns or {}, Files(names))
    late = _late(labels, columns or {}, Files(names, notes=log.notes))
    renamed = _renamed(names["class"].number, log.prediction, [log.label, *(late["label"] if late else [])], log.notes)
    log.classes, place = names["class"].in_order(renamed)
    labels_of, texts = np.concatenate([log.label, *(late["label"] if late else [])]), [*names["class"].number]
    means = pa.chunked_array([pa.array([renamed.get(text, text) for text in texts], pa.string())])
    times = np.bincount(labels_of - NONE, minlength=1 + len(texts))[1:]
    names["class"].nothing.add("the label", pa.chunked_array([pa.array(texts, pa.string())]), means, times)
    log.notes += [said for one in names.values() for said in one.nothing.said()]
    log.prediction, log.label = place[log.prediction], place[log.label]
    log.counts["read"] = len(log) + log.counts["not_a_row"]
    log.keep(log.time != UNREAD, "unreadable_time")
    log.keep(log.time != LATER, "no_time")
    log.keep(log.id != 0, "no_id")
    log.keep(log.version != NONE, "no_version")
    log.keep(log.prediction != NONE, "no_prediction")
    if not len(log):
        problem = f"None of {log.counts['read']:,} rows has a time, an id, a version and a prediction."
        problem = " ".join([problem, *log.notes])
        raise BadInput(problem, "Expected them in each row.", "Name the columns: --columns '{time: ts, …}'.")
    if until is not None:
        log.keep(log.time <= until, "after_until")
    _last_of_each(log)
    if late is not None:
        _join(log, late, place)
    came = (log.label != NONE) & (log.label_time <= (LATER - 1 if until is None else until))
    log.label[~came], log.label_time[~came] = NONE, LATER
    log.counts["labelled"] = int(came.sum())
    log.versions = list(names["version"].number)
    if lost := sorted(set(log.versions) - {log.versions[v] for v in np.unique(log.version).tolist()}):
        log.notes.append(f"No row is left of {', '.join(lost)}.")
    _check_order(log)
    _refuse_other_names(log)
    log.notes += _alike(log) if log.counts["labelled"] >= FEW else []
    log.groups, place = names["group"].in_order({})
    log.group = None if log.group is None else place[log.group]
    return log


def _refuse_other_names(log: Log) -> None:
    """Raise BadInput if predictions are numbers of a scale, or if no label is ever an answer."""
    classes, prediction, label = log.classes, log.prediction, log.label
    answers = [classes[c] for c in np.unique(prediction).tolist()]
    counts = np.bincount(label[label >= 0], minlength=len(classes))
    labels = [classes[c] for c in np.flatnonzero(counts).tolist()]
    decimal, of_labels = (sum(DECIMAL.fullmatch(one) is not None for one in of) for of in (answers, labels))
    if 2 * decimal > len(answers) > SCALE or (decimal > 1 and labels and not of_labels):
        problem = f"The predictions are {len(answers):,} numbers such as {answers[0]}."
        raise BadInput(problem, "Expected classes.", "Numbers of a scale have no accuracy: cut them into classes.")
    if counts.sum() >= FEW and not set(labels) & set(answers):
        few = (", ".join(names[:3]) + (" …" if len(names) > 3 else "") for names in (labels, answers))
        problem = "No label is ever an answer: labels are {}, answers are {}.".format(*few)
        raise BadInput(problem, "Expected the same names.", "Rename the classes of one column.")


def _renamed(
    number: Mapping[str, int], answers: Array, labels: Sequence[Array], notes: list[str]
) -> dict[str, str | None]:
    """Texts of classes that are none: words for nothing, unless they are answered and labelled, too; and truths in one
    form. number: of each text."""
    both = set(np.intersect1d(answers, np.concatenate([np.unique(of) for of in labels])).tolist())
    words = [text for text in number if text.casefold() in (*NOTHING, *NO_LABEL)]
    stay = [text for text in words if number[text] in both]
    if stay:
        notes.append(f"{', '.join(stay)}: a class, because it is answered and labelled.")
    renamed: dict[str, str | None] = dict.fromkeys(set(words) - set(stay))
    others = [text for text in number if text not in renamed]
    if {text.casefold() for text in others} <= {"true", "false"}:
        renamed |= {text: text.casefold() for text in others}
    return renamed


def _alike(log: Log) -> list[str]:
    """Names of classes that differ in form only, with what is answered and labelled by each."""
    size = len(log.classes)
    answers, labels = (np.bincount(of[of != NONE], minlength=size).tolist() for of in (log.prediction, log.label))
    counts = zip(log.classes, answers, labels, strict=True)
    return cells.alike({name: f"{answers:,} answers, {labels:,} labels" for name, answers, labels in counts})


def _check_order(log: Log) -> None:
    """Raise BadInput for a label that came before its prediction; a midnight may be the day's date."""
    last = log.label_time + (log.label_time % DAY == 0) * np.int64(DAY - 1)
    early = (log.label_time != UNTIMED) & (log.label_time != LATER) & (last < log.time)
    if early.any():
        k = int(early.argmax())
        times = f"the first at {iso(int(log.label_time[k]))}, of a prediction at {iso(int(log.time[k]))}"
        problem = f"{int(early.sum()):,} labels came before their predictions, {times}."
        raise BadInput(problem, "Expected later ones.", "Correct label_time, or leave it away.")


def _predictions(sources: Sequence[Any], columns: Mapping[str, str], files: Files) -> Log:
    tables = _tables(sources, columns, ROLES, NEEDED, files, "the log")
    joined: dict[str, Any] = {}
    for role in ROLES:
        parts = [table.pop(role) for table in tables if role in table]
        if len(parts) not in (0, len(tables)):
            raise BadInput(f"Only some of the logs have a column for {role}.", "Expected it in all, or in none.")
        joined[role] = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else None
    rows = len(joined["time"])
    if joined["label"] is None:
        joined["label"] = np.full(rows, NONE, np.int32)
    if joined["label_time"] is None:
        joined["label_time"] = np.full(rows, UNTIMED, np.int64)
    counts = Counter(not_a_row=files.faults) if files.faults else Counter[str]()
    return Log(**joined, versions=[], classes=[], groups=[], notes=files.notes, counts=counts)


def _late(labels: Sequence[Any], columns: Mapping[str, str], files: Files) -> dict[str, list[Array]] | None:
    """id, label and label_time of files of labels."""
    if not labels:
        return None
    tables = _tables(labels, columns, LABEL_ROLES, ("id", "label"), files, "the labels")
    untimed = [{"label_time": np.full(len(table["id"]), UNTIMED)} for table in tables]
    return {role: [(none | table)[role] for none, table in zip(untimed, tables, strict=True)] for role in LABEL_ROLES}


def _tables(
    sources: Sequence[Any], columns: Mapping[str, str], roles: Sequence[str], needed: Sequence[str], files: Files,
    what: str,
) -> list[dict[str, Array]]:  # fmt: skip
    """role → (N,) values, of each source. what: names them all."""
    tables = []
    for k, source in enumerate(sources, 1):
        name = str(source) if isinstance(source, str | Path) else f"table {k}" if len(sources) > 1 else "the table"
        tables.append(_table(source, name, columns, roles, needed, files))
    if len(files.forms) > 1:  # by how much they are apart is not known
        ways = " and ".join(FORMS[form] for form in sorted(files.forms))
        raise BadInput(f"Times of {what} are written {ways}.", "Expected one form.", "Give all a zone.")
    return tables


def _table(
    source: Any, what: str, columns: Mapping[str, str], roles: Sequence[str], needed: Sequence[str],
    files: Files,
) -> dict[str, Array]:  # fmt: skip
    """role → (N,) values."""
    parts: dict[str, list[Any]] = defaultdict(list)
    times = {role: TimeColumn(f"{what}: the {role}") for role in TIMES}
    with opened(source, what) as (columns_of, parts_of):
        of, row = named(columns_of, columns, roles, needed, what), 1
        faults: list[Fault] = []
        for table, faulty, *_ in parts_of(of):
            faults += faulty.values()
            for fault in (fault for fault in faulty.values() if fault.reason == "unreadable_value"):
                problem = f"{what}, line {fault.line:,}: a cell holds a list of several, or a record."
                raise BadInput(problem, "Expected one value a row.")
            good = np.ones(len(table), bool)
            good[[*faulty]] = False
            table = table.filter(pa.array(good)) if faulty else table
            for role in of:
                column, name = table[role], f"{what}: the {role}"
                if role in TIMES:
                    times[role].add(column)
                elif role == "id":
                    parts[role].append(_hashes(cells.ids(column, name, row)))
                elif role == "score":
                    parts[role].append(_scores(cells.number(column, name, row), what))
                else:
                    parts[role].append(files.names[CLASS_OF.get(role, role)].codes(column, name, role, row))
            for of_role in parts.values():  # many small arrays that are freed are not given back
                if len(of_role) >= MANY and len(of_role[-MANY]) <= BATCH:
                    of_role[-MANY:] = [np.concatenate(of_role[-MANY:])]
            row += len(table)
    pa.default_memory_pool().release_unused()
    if faults:
        files.faults += len(faults)
        files.notes.append(f"{what}: lines that are no rows: {len(faults):,}, the first is line {faults[0].line:,}.")
    # One column after the other: a log of 10⁷ rows is large.
    return {role: _whole(parts.pop(role, []), role, times.get(role), files) for role in of}


def _hashes(ids: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    """(N,) of texts; 0: there is none. Bytes are weighted by their places, and sums of 64 bits run over."""
    column = ids.combine_chunks().cast(pa.large_binary())
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    size = np.diff(ends)
    place = np.arange(ends[-1] - ends[0]) - np.repeat(ends[:-1] - ends[0], size)
    weight = (place.astype(np.uint64) + np.uint64(1)) * SPREAD
    weight ^= weight >> np.uint64(29)
    weight *= MIX
    weight ^= weight >> np.uint64(32)
    weight *= np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]] + np.uint64(1)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(weight)])
    hashes = sums[ends[1:] - ends[0]] - sums[ends[:-1] - ends[0]] + np.uint64(1)
    hashes[hashes == 0] = 1
    hashes[np.asarray(column.is_null())] = 0
    return hashes


def _scores(column: pa.ChunkedArray, what: str) -> npt.NDArray[np.float32]:
    score = pc.fill_null(column, np.nan).to_numpy().astype(np.float32)
    with np.errstate(invalid="ignore"):
        wrong = (score < 0) | (score > 1)
    if wrong.any():
        problem = f"{what}: {int(wrong.sum()):,} scores lie outside 0 … 1, the first is {score[wrong.argmax()]:g}."
        raise BadInput(problem, "Expected the confidence of each answer, 0 … 1.", "Divide percentages by 100.")
    return score


def _whole(parts: list[Any], role: str, column: TimeColumn | None, files: Files) -> Array:
    """(N,) of all batches; seconds UTC of times: `LATER` for none, of a label `UNTIMED`."""
    if column is None:
        return np.concatenate(parts) if parts else EMPTY
    (value, form, _), said = column.whole()
    files.notes += said
    files.forms |= set(np.unique(form).tolist()) - {time_cells.NO_TIME, UNREADABLE}
    value[form >= time_cells.NO_TIME] = LATER if role == "time" else UNTIMED
    if role == "time":
        value[form == UNREADABLE] = UNREAD
    return value


def _keys(log: Log) -> npt.NDArray[np.uint64]:
    """(N,) of an id and a version."""
    key = log.version.astype(np.uint64)
    key *= SPREAD
    key ^= log.id
    return key


def _last_of_each(log: Log) -> None:
    """Keep the last row of each id and version."""
    key = _keys(log)
    key.sort()  # in place: a log of 10⁷ rows is large
    if not (key[1:] == key[:-1]).any():
        return
    key = _keys(log)
    order = np.argsort(key, kind="stable")
    last = np.ones(len(key), bool)
    last[order[:-1]] = key[order[1:]] != key[order[:-1]]
    log.keep(last, "duplicates")


def _join(log: Log, late: Mapping[str, list[Array]], place: npt.NDArray[np.int32]) -> None:
    """Labels from other files, by id, for every version. place: of the number of each label's class."""
    ids, numbers, came = (np.concatenate(late[role]) for role in LABEL_ROLES)
    label = place[numbers]
    stated = np.flatnonzero((ids != 0) & (label != NONE))
    # Of several labels of an id the latest is last; of equal ones, the last row.
    order = stated[np.lexsort((came[stated], ids[stated]))]
    ids, label, came = ids[order], label[order], came[order]
    at = np.searchsorted(ids, log.id, side="right") - 1
    there = (at >= 0) & (ids[at] == log.id) if len(ids) else np.zeros(len(log), bool)
    log.label[there], log.label_time[there] = label[at[there]], came[at[there]]
    here = np.unique(ids)
    log.counts["unknown_ids"] = int(len(here) - np.isin(here, log.id).sum())
    if len(here) and log.counts["unknown_ids"] == len(here):
        problem = f"None of the {len(here):,} ids of the labels is in the log."
        raise BadInput(problem, "Expected labels of the log's predictions.", "Check that both are of one time.")
