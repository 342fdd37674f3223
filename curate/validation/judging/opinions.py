"""Opinions: what judges answered, one row per judge and image, and how they join the answers of people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from driftline.curate.core.parsing import rows_of

OPINIONS = pa.schema(
    [
        ("id", pa.string()),
        ("bucket", pa.int32()),
        ("judge", pa.string()),
        ("worker", pa.string()),
        ("labels", pa.list_(pa.string())),
        ("sensitive", pa.bool_()),
        ("confidence", pa.float32()),
        ("fault", pa.string()),
        ("question", pa.string()),
        ("model", pa.string()),
        ("usd", pa.float64()),
    ]
)


def opinion(id_: str, bucket: int, judge: str, labels: Sequence[str], **others: Any) -> dict[str, Any]:
    """One row of OPINIONS. others: the columns worker (default: the judge), sensitive, confidence, fault, question,
    model, usd."""
    row = {"sensitive": False, "confidence": None, "fault": None, "question": None, "model": None, "usd": 0.0}
    return {**row, "id": id_, "bucket": bucket, "judge": judge, "worker": judge, "labels": list(labels), **others}


def of_endpoint(entries: Mapping[str, Mapping[str, Any]], buckets: Mapping[str, int]) -> list[dict[str, Any]]:
    """Rows of the answers of one endpoint judge. entries: id → entry of the cache.

    A judge whose endpoint reports another model than before is another worker from there on.
    """
    names = ("labels", "sensitive", "confidence", "fault", "question", "model", "usd")
    return [
        opinion(id_, buckets[id_], e["judge"], worker=f"{e['judge']} ({e['reported']})", **{n: e[n] for n in names})
        for id_, e in entries.items()
    ]


def table_of(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows → table of OPINIONS, sorted by id and worker."""
    return pa.Table.from_pylist(sorted(rows, key=lambda r: (r["id"], r["worker"])), schema=OPINIONS)


def worker_columns(opinions: pa.Table) -> tuple[list[str], list[str], list[str]]:
    """(ids, workers, label sets joined by "|") of the opinions without a fault.

    A judge is one worker per bucket, so that a model of workers learns its confusion matrix in each bucket: a judge may
    be worse on old pictures.
    """
    ids, workers, labels = [], [], []
    for id_, worker, bucket, ticked, fault in rows_of(opinions, "id", "worker", "bucket", "labels", "fault"):
        if fault is None:
            ids.append(id_)
            workers.append(f"judge {worker} in bucket {bucket}")
            labels.append("|".join(sorted(ticked)))
    return ids, workers, labels
