"""A log's files → arrays: one entry a prediction, the last one of an id and version, with the label that had come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadInput
from driftline.curate.core.times.number_times import not_seconds, per_second
from driftline.eval.logs.columns import (
    BATCH,
    NEEDED,
    ROLES,
    kinds_of,
    named,
    number,
    opened,
    plain,
    quoted,
    seconds,
    text,
)
from driftline.eval.logs.foreign import refuse_other_names, refuse_unreadable
from driftline.stream_builder.step import CALENDAR

if TYPE_CHECKING:
    import pyarrow as pa

Array = npt.NDArray[Any]
LATER = np.iinfo(np.int64).max  # a time that has not come
UNTIMED = np.iinfo(np.int64).min  # a label that is there, without a time
NONE = -1  # a text that is not there
FORMS = ("without a zone", "with a zone", "as a number")
LABEL_ROLES = ("id", "label", "label_time")
TIMES = ("time", "label_time")
CLASS_OF = {"prediction": "class", "label": "class"}
EMPTY = np.zeros(0, np.int64)
YEAR = 365 * 86_400
TEXTS = ("version", "prediction", "label", "group")
SPREAD = np.uint64(0x9E3779B97F4A7C15)  # numbers of versions over 64 bits


@dataclass
class Names:
    """Texts and their numbers, in the order in which they came."""

    number: dict[str, int] = field(default_factory=dict)

    def codes(self, column: pa.Array) -> npt.NDArray[np.int32]:
        """(N,) the number of each text; `NONE`: no text."""
        coded = column.dictionary_encode("encode")
        return self.places(coded.dictionary.to_pylist())[np.from_dlpack(coded.indices)]

    def places(self, texts: Sequence[str | None]) -> npt.NDArray[np.int32]:
        """(n + 1,) the number of each text; behind them `NONE`."""
        places = (NONE if text is None else self.number.setdefault(text, len(self.number)) for text in texts)
        return np.array([*places, NONE], np.int32)

    def in_order(self) -> tuple[list[str], npt.NDArray[np.int32]]:
        """The texts, sorted, and the place of each number; behind them that of `NONE`. So the order of rows decides
        nothing."""
        texts = sorted(self.number)
        place = np.full(len(texts) + 1, NONE, np.int32)
        place[[self.number[one] for one in texts]] = np.arange(len(texts))
        return texts, place


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
    log = _predictions(sources, columns or {}, names)
    log.counts["read"] = len(log)
    log.keep(log.time != LATER, "no_time")
    log.keep(log.id != 0, "no_id")
    log.keep(log.version != NONE, "no_version")
    log.keep(log.prediction != NONE, "no_prediction")
    if not len(log):
        problem = f"None of {log.counts['read']:,} rows has a time, an id, a version and a prediction."
        raise BadInput(problem, "Expected them in each row.", "Name the columns: --columns '{time: ts, …}'.")
    if until is not None:
        log.keep(log.time <= until, "after_until")
    _last_of_each(log)
    if labels:
        _join(log, labels, columns or {}, names["class"])
    came = (log.label != NONE) & (log.label_time <= (LATER - 1 if until is None else until))
    log.label[~came], log.label_time[~came] = NONE, LATER
    log.counts["labelled"] = int(came.sum())
    log.versions = list(names["version"].number)
    log.classes, place = names["class"].in_order()
    log.prediction, log.label = place[log.prediction], place[log.label]
    refuse_other_names(log.classes, log.prediction, log.label)
    log.groups, place = names["group"].in_order()
    log.group = None if log.group is None else place[log.group]
    return log


def _predictions(sources: Sequence[Any], columns: Mapping[str, str], names: Mapping[str, Names]) -> Log:
    forms: set[int] = set()
    tables = [
        _table(source, _what(source, k, len(sources)), columns, ROLES, NEEDED, names, forms)
        for k, source in enumerate(sources)
    ]
    one_form(forms, "the log")
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
    return Log(**joined, versions=[], classes=[], groups=[], counts=Counter())


def _what(source: Any, k: int, of: int) -> str:
    if isinstance(source, str | Path):
        return str(source)
    return f"table {k + 1}" if of > 1 else "the table"


def _table(
    source: Any, what: str, columns: Mapping[str, str], roles: Sequence[str], needed: Sequence[str],
    names: Mapping[str, Names], forms: set[int],
) -> dict[str, Array]:  # fmt: skip
    """role → (N,) values. names, forms: texts, and how times are written, are added."""
    with opened(source, what) as (relation, _):
        kinds = kinds_of(relation)
        of = named(relation.columns, columns, roles, needed, what)
        refuse_unreadable(relation, {role: of[role] for role in (*TIMES, "score") if role in of}, kinds, what)
        parts: dict[str, list[Any]] = {role: [] for role in of}
        for batch in relation.project(", ".join(_selected(of, kinds))).to_arrow_reader(BATCH):
            for role in of:
                parts[role].append(_values(batch, role, names, what))
    # One column after the other: a log of 10⁷ rows is large.
    return {role: _whole(parts.pop(role), role, what, forms) for role in tuple(parts)}


def _selected(of: Mapping[str, str], kinds: Mapping[str, str]) -> Iterator[str]:
    """SQL of each column."""
    for role, column in of.items():
        kind = kinds[column]
        if role in TIMES:
            value, form = seconds(column, kind)
            yield f"coalesce({value}, 'nan'::DOUBLE) AS {role}, coalesce({form}, {NONE})::TINYINT AS {role}_form"
        elif role == "id":
            yield f"coalesce(hash({plain(column, kind)}), 0) AS id"
        elif role in TEXTS:
            yield f"{(plain if CLASS_OF.get(role) else text)(column, kind)} AS {quoted(role)}"
        else:
            yield f"{number(column)} AS {role}"


def _values(batch: pa.RecordBatch, role: str, names: Mapping[str, Names], what: str) -> Any:
    """(N,) of one batch; of a time, its numbers and forms."""
    if role in TEXTS:
        return names[CLASS_OF.get(role, role)].codes(batch[role])
    column = np.from_dlpack(batch[role]).copy()  # a view would hold the whole batch; `to_numpy` imports pandas
    if role in TIMES:
        return column, np.from_dlpack(batch[f"{role}_form"]).copy()
    if role != "score":
        return column
    score = column.astype(np.float32)
    with np.errstate(invalid="ignore"):
        wrong = (score < 0) | (score > 1)
    if wrong.any():
        problem = f"{what}: {int(wrong.sum()):,} scores lie outside 0 … 1, the first is {score[wrong.argmax()]:g}."
        raise BadInput(problem, "Expected the confidence of each answer, 0 … 1.", "Map no score, or divide per cents.")
    return score


def _whole(parts: list[Any], role: str, what: str, forms: set[int]) -> Array:
    if role in TIMES:
        return _moments(parts, role, what, forms)
    return np.concatenate(parts) if parts else EMPTY


def _moments(parts: list[tuple[Array, Array]], role: str, what: str, forms: set[int]) -> npt.NDArray[np.int64]:
    """(N,) seconds UTC of a column of times; `LATER`: none, of a label `UNTIMED`."""
    if not parts:
        return EMPTY
    values, form = (np.concatenate(of) for of in zip(*parts, strict=True))
    parts.clear()
    there = np.isfinite(values) & (form != NONE)
    if (form == 2).any():
        numbers = there & (form == 2)
        whole = values[numbers].astype(np.int64)
        if ((whole >= 1000) & (whole < 3000)).all():  # years
            values[numbers] = (whole - 1970).astype("datetime64[Y]").astype("datetime64[s]").astype(np.int64)
        elif (looks := not_seconds(whole)) or 0 <= int(whole.max()) < YEAR:
            problem = f"{what}: the {role} is {whole[0]}; as seconds, all rows would lie in 1970."
            expected = "Expected dates, or seconds, milliseconds … since 1970."
            raise BadInput(f"{problem} It looks like {looks}." if looks else problem, expected)
        else:
            values[numbers] = values[numbers] // per_second(int(np.abs(whole).max()))
    forms |= {one for one in range(len(FORMS)) if (form[there] == one).any()}
    values[~there] = 0
    out = np.floor(values, out=values).astype(np.int64)
    if (beyond := there & ((out < CALENDAR[0]) | (out > CALENDAR[1]))).any():
        raise BadInput(
            f"{what}: the {role} {values[beyond.argmax()]:.0f} lies outside the calendar.", "Expected a date."
        )
    out[~there] = LATER if role == "time" else UNTIMED
    return out


def one_form(forms: set[int], what: str) -> None:
    """Raise BadInput if some times have a zone and others none: by how much they are apart is not known."""
    if len(forms) > 1:
        ways = " and ".join(FORMS[form] for form in sorted(forms))
        raise BadInput(f"Times of {what} are written {ways}.", "Expected one form.", "Give all a zone.")


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


def _join(log: Log, labels: Sequence[Any], columns: Mapping[str, str], classes: Names) -> None:
    """Labels from other files, by id, for every version."""
    forms: set[int] = set()
    tables = [
        _table(source, _what(source, k, len(labels)), columns, LABEL_ROLES, ("id", "label"), {"class": classes}, forms)
        for k, source in enumerate(labels)
    ]
    one_form(forms, "the labels")
    ids, label = (np.concatenate([table[role] for table in tables]) for role in ("id", "label"))
    came = np.concatenate([table.get("label_time", np.full(len(table["id"]), UNTIMED)) for table in tables])
    stated = np.flatnonzero((ids != 0) & (label != NONE))
    # Of several labels of an id the latest is last; of equal ones, the last row.
    order = stated[np.lexsort((came[stated], ids[stated]))]
    ids, label, came = ids[order], label[order], came[order]
    place = np.searchsorted(ids, log.id, side="right") - 1
    there = (place >= 0) & (ids[place] == log.id) if len(ids) else np.zeros(len(log), bool)
    log.label[there], log.label_time[there] = label[place[there]], came[place[there]]
    here = np.unique(ids)
    log.counts["unknown_ids"] = int(len(here) - np.isin(here, log.id).sum())
    if len(here) and log.counts["unknown_ids"] == len(here):
        problem = f"None of the {len(here):,} ids of the labels is in the log."
        raise BadInput(problem, "Expected labels of the log's predictions.", "Check that both are of one time.")
