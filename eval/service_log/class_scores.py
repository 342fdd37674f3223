"""Accuracy without labels from the scores of all classes: columns `score_CLASS` of the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.seeding import rng_for
from driftline.eval.scoring.bands import Floats
from driftline.eval.service_log.columns import number, opened, quoted, text
from driftline.eval.service_log.reading import NONE, Log

Ints = npt.NDArray[np.int64]
PREFIX = "score_"
MOST = 2_000  # predictions of a cell
LEAST = 1e-6  # a score that is 0 counts as


def without(sources: Sequence[Any], classes: Sequence[str]) -> str:
    """Why the logs have no scores of all classes; "": they have."""
    for source in sources:
        with opened(source, str(source)) as (relation, _):
            lacking = [f"{PREFIX}{name}" for name in classes if f"{PREFIX}{name}" not in relation.columns]
        if len(lacking) == len(classes):
            return f"the log has no scores of all classes (columns {PREFIX}CLASS)"
        if lacking:
            return f"the log has no column {lacking[0]}"
    return ""


def class_scores(sources: Sequence[Any], columns: Mapping[str, str], log: Log, rows: Ints) -> Floats:
    """(R, C) scores of some predictions of the log; NaN where one has none. Of rows with one id and version the last
    counts. rows (R,): their places."""
    import pyarrow as pa

    out = np.full((len(rows), len(log.classes)), np.nan)
    place = {(int(log.id[k]), log.versions[log.version[k]]): i for i, k in enumerate(rows.tolist())}
    for source in sources:
        with opened(source, str(source)) as (relation, connection):
            kinds = {name: str(kind) for name, kind in zip(relation.columns, relation.types, strict=True)}
            id_, version = (columns.get(role, role) for role in ("id", "version"))
            wanted = pa.table({"wanted": log.id[rows]})
            connection.register("asked", wanted)
            scores = ", ".join(f"{number(PREFIX + name)} AS {quoted(name)}" for name in log.classes)
            selected = (
                f"hash({text(id_, kinds[id_])}) AS key, {text(version, kinds[version])} AS version_name, {scores}"
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
