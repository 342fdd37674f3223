"""Simulated workers: answers in the results format of MTurk, with a given error rate."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

from driftline.curate.core.seeding import rng_for
from driftline.curate.validation.asking.batches import NONE

HEADER = (
    "HITId", "HITTypeId", "Title", "Reward", "MaxAssignments", "AssignmentId", "WorkerId", "AssignmentStatus",
    "AcceptTime", "SubmitTime", "WorkTimeInSeconds", "Input.batch", "Input.item", "Input.image_url", "Answer.labels",
    "Answer.sensitive", "Approve", "Reject",
)  # fmt: skip


def answer(
    batch: Mapping[str, object],
    rows: Sequence[Mapping[str, str]],
    truth: Mapping[str, frozenset[str]],
    concepts: Sequence[str],
    seed: int,
    error: float,
    workers: int = 3,
    pool: int = 25,
) -> str:
    """A results CSV.

    rows: lines of batch.csv. truth: item → concepts that it shows. error: probability that an answer is wrong (misses
    the concept, adds one, or confuses it with another).
    """
    buffer = io.StringIO(newline="")
    writer = csv.DictWriter(buffer, HEADER, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    writer.writeheader()
    for row in rows:
        rng = rng_for(seed, "workers", row["item"])
        for place, worker in enumerate(rng.choice(pool, workers, replace=False).tolist()):
            ticked = set(truth[row["item"]])
            if rng.random() < error:
                wrong = concepts[int(rng.integers(len(concepts)))]
                ticked = [{wrong}, set(), ticked | {wrong}][int(rng.integers(3))]
            writer.writerow(
                {
                    "HITId": f"HIT{row['item']}",
                    "HITTypeId": "SIMULATED",
                    "Title": "Which of these are in the image?",
                    "Reward": "$0.02",
                    "MaxAssignments": workers,
                    "AssignmentId": f"A{row['item']}{place}",
                    "WorkerId": f"SIMULATED{worker:03d}",
                    "AssignmentStatus": "Submitted",
                    "AcceptTime": "Thu Oct 09 07:30:20 PDT 2025",
                    "SubmitTime": "Thu Oct 09 07:30:29 PDT 2025",
                    "WorkTimeInSeconds": int(rng.integers(4, 15)),
                    "Input.batch": row["batch"],
                    "Input.item": row["item"],
                    "Input.image_url": row["image_url"],
                    "Answer.labels": "|".join(sorted(ticked)) or NONE,
                    "Answer.sensitive": "no",
                }
            )
    return buffer.getvalue()
