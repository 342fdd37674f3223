"""One .npz file, which `driftline stream from-arrays` reads."""

from pathlib import Path

import numpy as np

from driftline.curate.core.atomic_io import writing
from driftline.stream_builder.stream import Stream, join


def export(stream: Stream, out: Path) -> dict[str, int]:
    """`stream.npz`: x, y, step, split, id, classes; time, group, test_in and label_time if all samples have one."""
    parts = [(step.index, name, split) for step in stream.steps for name, split in step.splits.items()]
    whole = join([split for _, _, split in parts])
    arrays = {
        "x": np.asarray(whole.x),
        "y": whole.y,
        "step": np.concatenate([np.full(len(split), index, np.int64) for index, _, split in parts]),
        "split": np.concatenate([np.full(len(split), name) for _, name, split in parts]),
        "id": whole.ids,
        "classes": np.array([str(c) for c in stream.classes]),
        **whole.columns(),
    }
    with writing(out / "stream.npz") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    return {"samples": len(arrays["y"])}
