"""A benchmark run as the log of a model in service: each model that a learner became is a version.

So `driftline age` is checked on streams whose answers are known.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from driftline.curate.core.atomic_io import csv_text, write_parquet, write_text
from driftline.eval.protocol import stored_protocol
from driftline.eval.rows import Run, new_models
from driftline.eval.timeline import timeline
from driftline.stream_builder.stream import SPLITS, Stream


def write_logs(runs: Sequence[Run], stream: Stream, out: Path) -> None:
    """LEARNER/seed-N.parquet, and versions.csv with the date to which each model is trained; all of one protocol."""
    splits = [step.splits[name] for step in stream.steps for name in SPLITS if name in step.splits]
    time, classes = np.concatenate([np.asarray(split.time) for split in splits]), np.array(stream.classes)
    for run in runs:
        parts = []
        for (i, _), row in sorted(new_models(run.rows, stored_protocol(run.about["protocol"]).roles.step).items()):
            answers = row.answers
            assert answers is not None
            columns = {
                "time": pa.array(time[answers.sample]).cast(pa.timestamp("s", "UTC")),
                "id": answers.sample.astype(str),
                "version": [stream.steps[i].name] * len(answers),
                "prediction": classes[answers.predicted],
                "label": classes[answers.label],
            }
            parts.append(pa.table(columns))
        folder, dates = out / str(run.about["learner"]), timeline(run.about).dates
        write_parquet(folder / f"seed-{run.about['seed']}.parquet", pa.concat_tables(parts))
        lines = [(step.name, np.datetime64(date, "s")) for step, date in zip(stream.steps, dates, strict=True)]
        write_text(folder / "versions.csv", csv_text(("version", "trained_to"), lines))
