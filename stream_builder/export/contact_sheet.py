"""Picture sheets of a stream: a row a step, columns by class, as Seq-to-Final's figures 2 to 7."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from curate.core.atomic_io import write_bytes
from curate.core.errors import IncompatibleStream
from stream_builder.stream import Stream

MOST = 12  # classes on a sheet
EDGE = 64  # pixels of a picture


def sheet(stream: Stream, path: Path, split: str = "train", each: int = 1) -> Path:
    """Write a PNG: the first `each` pictures of every class of every step, under the label that they bear there.

    Raises IncompatibleStream for a stream of features.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    steps = [s for s in stream.steps if split in s.splits]
    if not steps or np.dtype(steps[0][split].x.dtype) != np.uint8:
        raise IncompatibleStream(f"The stream {stream.name!r} has no pictures in {split}.", "Expected uint8 images.")
    classes = range(min(MOST, len(stream.classes)))
    columns = len(classes) * each
    figure = Figure(figsize=(0.9 * columns + 1.6, 1.0 * len(steps) + 0.8), layout="constrained")
    axes: Any = figure.subplots(len(steps), columns, squeeze=False)
    for row, step in enumerate(steps):
        data = step[split]
        for c in classes:
            here = np.flatnonzero(np.asarray(data.y) == c)[:each]
            for k in range(each):
                axis = axes[row][c * each + k]
                axis.set_xticks([])
                axis.set_yticks([])
                for side in axis.spines.values():
                    side.set_visible(False)
                if k < len(here):
                    axis.imshow(data.x[int(here[k])], interpolation="nearest")
                if row == 0 and k == 0:
                    axis.set_title(str(stream.classes[c])[:12], fontsize=8)
        axes[row][0].set_ylabel(step.name[:18], fontsize=8, rotation=0, ha="right", va="center")
    figure.suptitle(stream.name, fontsize=10)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    write_bytes(path, buffer.getvalue())
    return path
