"""Answers for tests of verdicts."""

from collections.abc import Sequence

import pyarrow as pa

from driftline.curate.validation.answers.answers import ANSWERS


def answers_table(rows: Sequence[tuple[str, str, Sequence[str]]], sensitive: Sequence[bool] | None = None) -> pa.Table:
    """(id, worker, labels) → table of ANSWERS."""
    flags = [False] * len(rows) if sensitive is None else sensitive
    return pa.Table.from_pylist(
        [
            {"item": id_, "id": id_, "worker": who, "labels": list(said), "sensitive": flag, "fault": None}
            for (id_, who, said), flag in zip(rows, flags, strict=True)
        ],
        schema=ANSWERS,
    )
