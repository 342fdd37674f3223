"""Inputs that only an old version gets wrong: two versions answered them in one period, and the fresh one is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from driftline.eval.service_log.cells import Cells, Ints
from driftline.eval.service_log.columns import kinds_of, opened, plain, text
from driftline.eval.service_log.reading import NONE, Log

SHOWN = 12


@dataclass(frozen=True)
class Lost:
    """The last pair of an old and a fresh version that answered the same inputs."""

    old: int
    """number of the version"""
    fresh: int
    both: int
    """inputs with a label that both answered"""
    n: int
    """of which the old version alone is wrong on"""
    examples: list[dict[str, str]]
    """id, label and the old version's answer of some, the most confident mistakes first; path if the log has one"""


def lost_of(
    log: Log, cells: Cells, rows_of_cell: list[Ints], sources: Sequence[Any], columns: Mapping[str, str]
) -> Lost | None:
    """Of the last period in which two versions share inputs with labels; None without one."""
    for period in np.unique(cells.period)[::-1].tolist():
        places = np.flatnonzero(cells.period == period)
        places = places[np.argsort(-cells.lag[places], kind="stable")]  # the oldest first
        if len(places) < 2:
            continue
        rows = [of[log.label[of] != NONE] for of in (rows_of_cell[places[0]], rows_of_cell[places[-1]])]
        ids, old, fresh = np.intersect1d(log.id[rows[0]], log.id[rows[1]], True, return_indices=True)
        if not len(ids):
            continue
        old, fresh = rows[0][old], rows[1][fresh]
        wrong = (log.prediction[old] != log.label[old]) & (log.prediction[fresh] == log.label[fresh])
        score = np.zeros(len(old)) if log.score is None else np.nan_to_num(log.score[old])
        first = np.flatnonzero(wrong)[np.argsort(-score[wrong], kind="stable")][:SHOWN]
        texts = _texts(sources, columns, ids[first])
        examples = [
            {"id": texts[int(ids[k])]["id"], "label": log.classes[log.label[old[k]]],
             "answer": log.classes[log.prediction[old[k]]],
             **({"path": path} if (path := texts[int(ids[k])].get("path")) else {})}
            for k in first.tolist() if int(ids[k]) in texts
        ]  # fmt: skip
        return Lost(int(cells.version[places[0]]), int(cells.version[places[-1]]), len(ids), int(wrong.sum()), examples)
    return None


def _texts(sources: Sequence[Any], columns: Mapping[str, str], ids: Any) -> dict[int, dict[str, Any]]:
    """Hash of an id → the id, and its path if the log has one, of its last row."""
    import pyarrow as pa

    rows: dict[int, dict[str, Any]] = {}
    for source in sources:
        with opened(source, str(source)) as (relation, connection):
            kinds = kinds_of(relation)
            id_, path = (columns.get(role, role) for role in ("id", "path"))
            wanted = pa.table({"wanted": ids})
            connection.register("wanted_ids", wanted)
            key = plain(id_, kinds[id_])
            chosen = [f"hash({key}) AS key", f"{key} AS id"]
            chosen += [f"{text(path, kinds[path])} AS path"] if path in kinds else []
            found = relation.project(", ".join(chosen)).filter("key IN (SELECT wanted FROM wanted_ids)")
            rows |= {row.pop("key"): row for row in found.to_arrow_table().to_pylist()}
    return rows
