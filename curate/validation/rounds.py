"""Rounds: where too few images of a class were accepted, the next candidates are asked, until it is full or there are
none."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from curate.retrieval.settings import BACKGROUND

LEAST_RATE = 0.1  # a class that was never accepted is not asked about without end
Cell = tuple[int, str]  # bucket, concept


def lacking(verdicts: pa.Table, wanted: Mapping[str, int], buckets: Iterable[int]) -> dict[Cell, tuple[int, float]]:
    """Cells that have fewer accepted images than their class wants → how many lack, and the share accepted so far.

    verdicts: table of VERDICTS. An image accepted for two concepts is published for neither and counts for none.
    """
    ids, cells_, outcomes = (
        verdicts["id"].to_pylist(),
        list(zip(verdicts["bucket"].to_pylist(), verdicts["concept"].to_pylist(), strict=True)),
        verdicts["verdict"].to_pylist(),
    )
    times = Counter(id_ for id_, outcome in zip(ids, outcomes, strict=True) if outcome == "kept")
    asked: Counter[Cell] = Counter(cells_)
    kept = Counter(cell for id_, cell, o in zip(ids, cells_, outcomes, strict=True) if o == "kept" and times[id_] == 1)
    return {
        (b, c): (n - kept[b, c], kept[b, c] / max(1, asked[b, c]))
        for b in buckets
        for c, n in wanted.items()
        if kept[b, c] < n
    }


def following(candidates: pa.Table, asked: set[str], short: Mapping[Cell, tuple[int, float]]) -> list[dict[str, Any]]:
    """The next candidates of every cell that is short, as many as the share accepted so far lets expect to be needed.

    candidates: `candidates.parquet` of retrieve; a concept goes on where its list was cut (`surplus`), the background
    with its `reserve`. Images that were asked are not asked again. Rows: id, bucket, concept, score.
    """
    fates = pa.array(["surplus", "reserve"])
    waiting = candidates.filter(pc.is_in(candidates["fate"], value_set=fates))
    lists: dict[Cell, list[tuple[int, str, float]]] = defaultdict(list)
    for row in waiting.to_pylist():
        cell = (row["bucket"], row["concept"])
        if cell in short and (row["fate"] == "reserve") == (row["concept"] == BACKGROUND):
            lists[cell].append((row["rank"], row["id"], row["score"]))
    taken = set(asked)
    found: list[dict[str, Any]] = []
    for cell in sorted(short):
        missing, rate = short[cell]
        wanted = math.ceil(missing / max(rate, LEAST_RATE))
        for _, id_, score in sorted(lists[cell]):
            if wanted == 0:
                break
            if id_ not in taken:
                taken.add(id_)
                found.append({"id": id_, "bucket": cell[0], "concept": cell[1], "score": score})
                wanted -= 1
    return found


def shortage(short: Mapping[Cell, tuple[int, float]]) -> Sequence[str]:
    """Lines for a person: what lacks where."""
    return [
        f"bucket {b}, {c}: {missing} more ({rate:.0%} accepted)" for (b, c), (missing, rate) in sorted(short.items())
    ]
