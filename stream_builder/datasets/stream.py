"""A driftline stream: its training and validation samples of all steps, and its test samples, without their times."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from driftline.curate.core.errors import IncompatibleStream
from driftline.stream_builder.datasets import Dataset, Format, Options, Samples
from driftline.stream_builder.stream import Stream, join


def open_stream(path: Path, options: Options) -> Dataset:
    """Images have the size that they have in the stream. Raises IncompatibleStream for one without test samples."""
    stream = Stream.load(path)
    sides = []
    for names in (("train", "val"), ("test",)):
        splits = [step.splits[name] for step in stream.steps for name in names if name in step.splits]
        if not splits:
            raise IncompatibleStream(f"The stream {stream.name!r} has no {names[0]} split.", "Expected train and test.")
        split = join(splits)
        sides.append(Samples(split.x, split.y, np.arange(len(split))))
    return Dataset(stream.name, sides[0], sides[1], [str(name) for name in stream.classes])


FORMAT = Format(lambda path: (path / "stream.json").is_file(), open_stream)
