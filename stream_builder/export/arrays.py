"""One .npz file, which `driftline stream from-arrays` reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from curate.core.atomic_io import writing
from stream_builder.stream import Stream


def export(stream: Stream, out: Path) -> dict[str, int]:
    """`stream.npz`: x, y, step, split, id, classes, and time if all samples have one."""
    parts = [(step.index, name, split) for step in stream.steps for name, split in step.splits.items()]
    times = [split.time for _, _, split in parts]
    arrays = {
        "x": np.concatenate([np.asarray(split.x) for _, _, split in parts]),
        "y": np.concatenate([split.y for _, _, split in parts]),
        "step": np.concatenate([np.full(len(split), index, np.int64) for index, _, split in parts]),
        "split": np.concatenate([np.full(len(split), name) for _, name, split in parts]),
        "id": np.concatenate([split.ids for _, _, split in parts]),
        "classes": np.array([str(c) for c in stream.classes]),
    }
    if all(t is not None for t in times):
        arrays["time"] = np.concatenate([t for t in times if t is not None])
    with writing(out / "stream.npz") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    return {"samples": len(arrays["y"])}
