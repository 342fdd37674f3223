"""Answers for tests of verdicts and of agreement."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from driftline.curate.core.seeding import rng_for
from driftline.curate.validation.answers.agreement import Votes
from driftline.curate.validation.answers.answers import ANSWERS


def answers_table(rows: Sequence[tuple[str, str, Sequence[str]]], sensitive: Sequence[bool] | None = None) -> pa.Table:
    """(id, worker, labels) → table of ANSWERS, each after five seconds."""
    flags = [False] * len(rows) if sensitive is None else sensitive
    return pa.Table.from_pylist(
        [
            {"item": id_, "id": id_, "worker": who, "assignment": f"{id_} {who}", "labels": list(said),
             "sensitive": flag, "seconds": 5, "fault": None}
            for (id_, who, said), flag in zip(rows, flags, strict=True)
        ],
        schema=ANSWERS,
    )  # fmt: skip


def simulated(
    seed: int = 0, items: int = 400, workers: int = 20, labels: int = 4, spam: float = 0.25
) -> tuple[Votes, Any]:
    """Three answers an item, and the truth; spammers guess, the others are right with .7 to .95."""
    rng = rng_for(seed, "workers")
    truth = rng.integers(0, labels, items)
    skill = np.where(rng.random(workers) < spam, 1 / labels, rng.uniform(0.7, 0.95, workers))
    rows = []
    for i in range(items):
        for w in rng.choice(workers, 3, replace=False).tolist():
            right = rng.random() < skill[w]
            rows.append((i, w, truth[i] if right else (truth[i] + rng.integers(1, labels)) % labels))
    return Votes(*np.array(rows, np.int64).T), truth
