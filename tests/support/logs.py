"""A benchmark run as the log of a model in service: each model that a learner became is a version.

So `driftline age` is checked on streams whose answers are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from driftline.curate.core.atomic_io import csv_text, write_parquet, write_text
from driftline.curate.core.errors import BadConfig
from driftline.eval.protocol import stored_protocol
from driftline.eval.rows import Run, new_models
from driftline.eval.scoring.timeline import timeline
from driftline.stream_builder.stream import SPLITS, Stream


def write_logs(runs: Sequence[Run], stream: Stream | None, out: Path) -> int:
    """LEARNER/seed-N.parquet, and versions.csv with the date to which each model is trained; returns how many logs.

    Runs of one protocol and stream. A run without outcomes, or whose protocol tests no models on steps, has no log.
    Raises BadConfig for a stream that is not there or has no dates.
    """
    splits = [] if stream is None else [s.splits[name] for s in stream.steps for name in SPLITS if name in s.splits]
    dates = timeline(runs[0].about).dates
    if stream is None or not dates or any(split.time is None for split in splits):
        raise BadConfig("A log needs the dates of samples.", "Expected --stream with a stream that has them.")
    ids = np.concatenate([split.ids for split in splits])
    if len(np.unique(ids)) < len(ids):  # each step may number its samples from 0
        ids = np.arange(len(ids)).astype(str)
    time = np.concatenate([np.asarray(split.time) for split in splits])
    classes, written = np.array(stream.classes), 0
    for run in runs:
        rows = new_models(run.rows, stored_protocol(run.about["protocol"]).roles.step)
        parts = []
        for (i, _), row in sorted(rows.items()):
            if (answers := row.answers) is None:
                continue
            score = np.full(len(answers), np.nan) if answers.confidence is None else answers.confidence
            parts.append(
                pa.table(
                    {
                        "time": pa.array(time[answers.sample]).cast(pa.timestamp("s", "UTC")),
                        "id": ids[answers.sample],
                        "version": [stream.steps[i].name] * len(answers),
                        "prediction": classes[answers.predicted],
                        "score": np.asarray(score, np.float32),
                        "label": classes[answers.label],
                    }
                )
            )
        if parts:
            folder = out / str(run.about["learner"])
            write_parquet(folder / f"seed-{run.about['seed']}.parquet", pa.concat_tables(parts))
            lines = [(step.name, np.datetime64(date, "s")) for step, date in zip(stream.steps, dates, strict=True)]
            write_text(folder / "versions.csv", csv_text(("version", "trained_to"), lines))
            written += 1
    return written
