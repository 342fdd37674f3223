"""Accuracy without labels from the scores of all classes: columns `score_CLASS` of the log, or one with lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.seeding import rng_for
from driftline.eval.scoring.bands import Floats
from driftline.eval.service_log.columns import kinds_of, number, opened, plain, quoted, text
from driftline.eval.service_log.reading import NONE, Log

if TYPE_CHECKING:
    import duckdb

Ints = npt.NDArray[np.int64]
PREFIX = "score_"
MOST = 2_000  # predictions of a cell
CHECKED = 200  # rows with lists
LEAST = 1e-6  # a score that is 0 counts as


def without(sources: Sequence[Any], columns: Mapping[str, str], classes: Sequence[str]) -> str:
    """Why the logs have no scores of all classes; "": they have."""
    for source in sources:
        with opened(source, str(source)) as (relation, _):
            if why := _scores(relation, columns, classes)[1]:
                return why
    return ""


def _scores(
    relation: duckdb.DuckDBPyRelation, columns: Mapping[str, str], classes: Sequence[str]
) -> tuple[list[str], str]:
    """SQL of the score of each class; or why there is none."""
    lacking = [f"{PREFIX}{name}" for name in classes if f"{PREFIX}{name}" not in relation.columns]
    if not lacking:
        return [number(PREFIX + name) for name in classes], ""
    lists = columns.get("scores", "scores")
    kind = kinds_of(relation).get(lists, "")
    if kind.endswith("]") or kind in ("VARCHAR", "JSON"):
        return _of_lists(relation, columns, lists, classes)
    if len(lacking) < len(classes):
        return [], f"the log has no column {lacking[0]}"
    return [], f"the log has no scores of all classes (columns {PREFIX}CLASS, or lists in {lists})"


def _of_lists(
    relation: duckdb.DuckDBPyRelation, columns: Mapping[str, str], lists: str, classes: Sequence[str]
) -> tuple[list[str], str]:
    """The same of a column with a list a row, in the order of `classes` of the columns, else of the log's classes."""
    order = [name.strip() for name in columns["classes"].split(",")] if "classes" in columns else list(classes)
    cell, answer = f"try_cast({quoted(lists)} AS DOUBLE[])", columns.get("prediction", "prediction")
    sample = relation.project(f"{cell} AS scores, {plain(answer, kinds_of(relation)[answer])} AS answer")
    rows = sample.filter("scores IS NOT NULL AND answer IS NOT NULL").limit(CHECKED).fetchall()
    if not rows:
        return [], f"the column {lists} has no lists of numbers"
    if other := [name for name in classes if name not in order]:
        return [], f"classes of --columns lacks {other[0]}"
    if len(rows[0][0]) != len(order):
        return [], f"a list of {lists} has {len(rows[0][0])} numbers, and there are {len(order)} classes"
    largest = [int(np.argmax(np.array(scores, np.float64))) for scores, _ in rows]
    same = sum(order[k : k + 1] == [name] for k, (_, name) in zip(largest, rows, strict=True))
    if 2 * same < len(rows):
        problem = f"in only {same} of {len(rows)} rows the largest of {lists} belongs to the answered class"
        return [], f"{problem}: name their order, as in --columns '{{classes: \"B, A\"}}'"
    places = [order.index(name) + 1 for name in classes]
    return [f"CASE WHEN len({cell}) = {len(order)} THEN {cell}[{place}] END" for place in places], ""


def class_scores(sources: Sequence[Any], columns: Mapping[str, str], log: Log, rows: Ints) -> Floats:
    """(R, C) scores of some predictions of the log; NaN where one has none. Of rows with one id and version the last
    counts. rows (R,): their places."""
    import pyarrow as pa

    out = np.full((len(rows), len(log.classes)), np.nan)
    place = {(int(log.id[k]), log.versions[log.version[k]]): i for i, k in enumerate(rows.tolist())}
    for source in sources:
        with opened(source, str(source)) as (relation, connection):
            kinds = kinds_of(relation)
            id_, version = (columns.get(role, role) for role in ("id", "version"))
            wanted = pa.table({"wanted": log.id[rows]})
            connection.register("asked", wanted)
            scores = [f"{one} AS score_{c}" for c, one in enumerate(_scores(relation, columns, log.classes)[0])]
            selected = ", ".join(
                [f"hash({plain(id_, kinds[id_])}) AS key", f"{text(version, kinds[version])} AS version_name", *scores]
            )
            read = relation.project(selected).filter("key IN (SELECT wanted FROM asked)").to_arrow_table()
        at = [
            place.get(pair, NONE)
            for pair in zip(*(read[name].to_pylist() for name in read.column_names[:2]), strict=True)
        ]
        values = np.stack([read.column(2 + c).to_numpy().astype(np.float64) for c in range(len(log.classes))], 1)
        for i, k in enumerate(at):
            if k != NONE:
                out[k] = values[i]
    return out


def mlls(
    sources: Sequence[Any], columns: Mapping[str, str], log: Log, rows: Sequence[Ints], source: Ints, later: Ints,
    seed: int = 0,
) -> Floats:  # fmt: skip
    """(K,) accuracy of cells: class frequencies by maximum likelihood [Saerens et al. 2002, eq. 2.9], from scores that
    are calibrated on the source's labels [Alexandari et al. 2020, sec. 2], and the source's recall of each class.
    rows: of each cell. source (K,): cell in which each one's version was young. later: cells to estimate."""
    from driftline.eval.engine.scores import softmax
    from driftline.eval.learners.label_shift import calibrated, em

    value = np.full(len(rows), np.nan)
    for first in np.unique(source[later]).tolist():
        young = rows[first][log.label[rows[first]] != NONE]
        targets = later[source[later] == first].tolist()
        drawn = [rng_for(seed, "mlls", str(k)).permutation(of)[:MOST]
                 for k, of in [(first, young), *((k, rows[k]) for k in targets)]]  # fmt: skip
        parts = [class_scores(sources, columns, log, of) for of in drawn]
        there = [np.isfinite(part).all(1) for part in parts]
        logits = [np.log(np.maximum(part[ok], LEAST)) for part, ok in zip(parts, there, strict=True)]
        label = log.label[drawn[0][there[0]]].astype(np.int64)
        if not len(label):
            continue
        size = len(log.classes)
        n = np.bincount(log.label[young], minlength=size)
        right = np.bincount(log.label[young][log.label[young] == log.prediction[young]], minlength=size)
        factor, biases = calibrated(logits[0], label, False)
        for k, part in zip(targets, logits[1:], strict=True):
            if len(part):
                share = em(softmax(part * factor + biases), n / n.sum()) * (n > 0)
                value[k] = float((share * right / np.maximum(n, 1)).sum() / share.sum())
    return value
