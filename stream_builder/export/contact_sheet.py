"""Contact sheets of a stream: a row per step, columns by class, as in Seq-to-Final's figures 2 to 7."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from driftline.curate.core.atomic_io import write_bytes
from driftline.curate.core.errors import IncompatibleStream
from driftline.stream_builder.stream import Split, Stream

MAX_CLASSES = 12


def examples(split: Split, classes: int, each: int = 1) -> list[list[int]]:
    """Positions of the first `each` samples of each of the first `classes` classes."""
    y = np.asarray(split.y)
    return [np.flatnonzero(y == label)[:each].tolist() for label in range(classes)]


def write_contact_sheet(stream: Stream, path: Path, split: str = "train", each: int = 1) -> Path:
    """Write a PNG with the first `each` images of every class in every step, by their label in that step.

    Raises IncompatibleStream for a stream without images.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    steps = [step for step in stream.steps if split in step.splits]
    if not steps or np.dtype(steps[0][split].x.dtype) != np.uint8:
        raise IncompatibleStream(f"The stream {stream.name!r} has no images in {split}.", "Expected uint8 images.")
    classes = min(MAX_CLASSES, len(stream.classes))
    figure = Figure(figsize=(0.9 * classes * each + 1.6, 1.0 * len(steps) + 0.8), layout="constrained")
    axes: Any = figure.subplots(len(steps), classes * each, squeeze=False)
    for row, step in enumerate(steps):
        for label, positions in enumerate(examples(step[split], classes, each)):
            for k in range(each):
                axis = axes[row][label * each + k]
                axis.set_xticks([])
                axis.set_yticks([])
                for edge in axis.spines.values():
                    edge.set_visible(False)
                if k < len(positions):
                    axis.imshow(step[split].x[positions[k]], interpolation="nearest")
                if row == 0 and k == 0:
                    axis.set_title(str(stream.classes[label])[:12], fontsize=8)
        axes[row][0].set_ylabel(step.name[:18], fontsize=8, rotation=0, ha="right", va="center")
    figure.suptitle(stream.name, fontsize=10)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    write_bytes(path, buffer.getvalue())
    return path
