"""Which predictions to label next: drawn at random, so that their labels speak for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from driftline.curate.core.errors import Shortage
from driftline.curate.core.seeding import rng_for
from driftline.eval.service_log.cells import Cells
from driftline.eval.service_log.columns import kinds_of, opened, plain, quoted, text
from driftline.eval.service_log.reading import NONE, Array, Log

PLAIN = ("id", "prediction")
SHOWN = ("id", "version", "time", "prediction", "path")


def drawn(log: Log, cells: Cells, count: int, seed: int = 0) -> Array:
    """(count,) hashes of ids: of predictions without a label that the newest version served in the last period of the
    log, at random; of fewer all. Raises Shortage if there is none."""
    newest = int(np.flatnonzero(cells.period == cells.period.max())[-1])  # cells are in order of version
    ids = np.unique(log.id[(cells.of == newest) & (log.label == NONE) & log.served])
    if not len(ids):
        version = log.versions[int(cells.version[newest])]
        problem = f"Every prediction of {version} in the last period has a label, or was not served."
        raise Shortage(problem, "Expected some without, to draw from.", "Give a newer log.")
    return np.sort(rng_for(seed, "ask").permutation(ids)[:count])


def rows_of(sources: Sequence[Any], columns: Mapping[str, str], ids: Array) -> dict[int, dict[str, Any]]:
    """Hash of an id → its last row, as text: id, version, time, prediction, and path if the log has one; in the order
    of `ids`."""
    rows: dict[int, dict[str, Any]] = {}
    for source in sources:
        with opened(source, str(source)) as (relation, connection):
            kinds = kinds_of(relation)
            of = {role: columns.get(role, role) for role in SHOWN}
            chosen = [
                f"{(plain if role in PLAIN else text)(column, kinds[column])} AS {quoted(role)}"
                for role, column in of.items()
                if column in kinds
            ]
            import pyarrow as pa

            wanted = pa.table({"wanted": ids})
            connection.register("asked", wanted)
            key = f"hash({plain(of['id'], kinds[of['id']])})"
            matched = relation.project(f"{key} AS key, {', '.join(chosen)}").filter("key IN (SELECT wanted FROM asked)")
            for row in matched.to_arrow_table().to_pylist():
                rows[row.pop("key")] = row
    return {key: rows[key] for key in ids.tolist() if key in rows}
