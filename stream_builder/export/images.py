"""What the exports of images share: every sample with a file name and PNG bytes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from driftline.curate.core.errors import IncompatibleStream
from driftline.stream_builder.stream import Step, Stream


@dataclass(frozen=True)
class EncodedImage:
    """One sample of a stream of images."""

    step: Step
    """its step"""
    split: str
    """name of its split"""
    key: str
    """unique in the stream and safe as a file name"""
    id: str
    """the sample's id"""
    label: int
    """its class"""
    time: int | None
    """seconds UTC, or None"""
    data: bytes
    """PNG, lossless"""


def images(stream: Stream) -> Iterator[EncodedImage]:
    """Every sample, in order of steps, splits and positions. Raises IncompatibleStream for a stream without images."""
    from PIL import Image

    for step in stream.steps:
        for name, split in step.splits.items():
            if np.dtype(split.x.dtype) != np.uint8:
                raise IncompatibleStream(
                    f"The stream {stream.name!r} has no images.", "Expected uint8 images.", "Export it as arrays."
                )
            for i in range(len(split)):
                buffer = io.BytesIO()
                Image.fromarray(np.asarray(split.x[i])).save(buffer, "PNG", compress_level=1)
                time = None if split.time is None else int(split.time[i])
                key = f"{step.index:03d}_{name}_{i:07d}"
                yield EncodedImage(
                    step, name, key, str(split.ids[i]), label=int(split.y[i]), time=time, data=buffer.getvalue()
                )


def class_folder(stream: Stream, label: int) -> str:
    """A class's folder: its number, so that no two classes share one and names sort by label; and its name, with
    characters replaced that paths cannot have."""
    digits = max(4, len(str(len(stream.classes) - 1)))
    name = "".join(c if c.isalnum() or c in "-_" else "_" for c in str(stream.classes[label]))[:60]
    return f"{label:0{digits}d}_{name}"
