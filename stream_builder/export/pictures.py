"""What exporters of pictures share: every sample with a file name and PNG bytes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from curate.core.errors import IncompatibleStream
from stream_builder.stream import Step, Stream


@dataclass(frozen=True)
class Picture:
    """key: unique in the stream and safe as a file name. data: PNG, lossless."""

    step: Step
    split: str
    key: str
    id: str
    label: int
    time: int | None
    data: bytes


def pictures(stream: Stream) -> Iterator[Picture]:
    """Every sample, in order of steps, splits and positions. Raises IncompatibleStream for a stream of features."""
    from PIL import Image

    for step in stream.steps:
        for name, split in step.splits.items():
            if np.dtype(split.x.dtype) != np.uint8:
                raise IncompatibleStream(
                    f"The stream {stream.name!r} holds features.", "Expected images.", "Export it as arrays."
                )
            for i in range(len(split)):
                buffer = io.BytesIO()
                Image.fromarray(np.asarray(split.x[i])).save(buffer, "PNG", compress_level=1)
                time = None if split.time is None else int(split.time[i])
                key = f"{step.index:03d}_{name}_{i:07d}"
                yield Picture(step, name, key, str(split.ids[i]), int(split.y[i]), time, buffer.getvalue())


def folder_of(stream: Stream, label: int) -> str:
    """A class's folder: its number and what of its name a path can hold."""
    safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in str(stream.classes[label]))[:60]
    return f"{label:04d}_{safe}"
