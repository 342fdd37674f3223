"""Rounds: classes with too few accepted images get further candidates, until they are full or no candidates remain."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from driftline.curate.core.parsing import rows_of
from driftline.curate.retrieval.settings import BACKGROUND

LEAST_RATE = 0.1  # limits the number of candidates for a class that was rarely accepted
Cell = tuple[int, str]  # bucket, concept


def short_cells(
    verdicts: pa.Table,
    wanted: Mapping[str, int],
    buckets: Iterable[int],
    empty: Mapping[Cell, int] = MappingProxyType({}),
) -> dict[Cell, tuple[int, float]]:
    """Cells with fewer accepted images than `wanted` for the class → (number missing, share accepted so far).

    verdicts: table of VERDICTS. An image accepted for two concepts counts for neither, because it is not published.
    empty: places of withdrawn photos, which stay empty.
    """
    asked: Counter[Cell] = Counter(rows_of(verdicts, "bucket", "concept"))
    accepted = list(rows_of(verdicts.filter(pc.equal(verdicts["verdict"], "kept")), "id", "bucket", "concept"))
    times = Counter(id_ for id_, *_ in accepted)
    counts = Counter((bucket, concept) for id_, bucket, concept in accepted if times[id_] == 1)
    return {
        (b, c): (n - counts[b, c] - empty.get((b, c), 0), counts[b, c] / max(1, asked[b, c]))
        for b in buckets
        for c, n in wanted.items()
        if counts[b, c] + empty.get((b, c), 0) < n
    }


def next_candidates(
    candidates: pa.Table, asked: set[str], short: Mapping[Cell, tuple[int, float]]
) -> list[dict[str, Any]]:
    """The next candidates of every short cell; their number follows from the share accepted so far.

    candidates: `candidates.parquet` of retrieve. A concept continues in its list after the images that were asked
    (`surplus`, which passed the same rules), the background with its `reserve`. No image is asked twice. Rows: id,
    bucket, concept, score.
    """
    unused = candidates.filter(pc.is_in(candidates["fate"], value_set=pa.array(["surplus", "reserve"])))
    lists: dict[Cell, list[tuple[int, str, float]]] = defaultdict(list)
    for row in unused.to_pylist():
        cell = (row["bucket"], row["concept"])
        if cell in short and (row["fate"] == "reserve") == (row["concept"] == BACKGROUND):
            lists[cell].append((row["rank"], row["id"], row["score"]))
    taken = set(asked)
    rows: list[dict[str, Any]] = []
    for cell in sorted(short):
        missing, rate = short[cell]
        wanted = math.ceil(missing / max(rate, LEAST_RATE))
        for _, id_, score in sorted(lists[cell]):
            if wanted == 0:
                break
            if id_ not in taken:
                taken.add(id_)
                rows.append({"id": id_, "bucket": cell[0], "concept": cell[1], "score": score})
                wanted -= 1
    return rows


def describe_short(short: Mapping[Cell, tuple[int, float]]) -> Sequence[str]:
    """One readable line per short cell."""
    return [
        f"bucket {b}, {c}: {missing} more ({rate:.0%} accepted)" for (b, c), (missing, rate) in sorted(short.items())
    ]
