"""A stream as HTML for notebooks: steps, sizes, and an image of each class."""

import io
from typing import Any

import numpy as np

from driftline.curate.foreign.notebook import Thumbnail, table
from driftline.stream_builder.builders.encoded import is_image
from driftline.stream_builder.export.layouts import MAX_CLASSES, examples
from driftline.stream_builder.stream import SPLITS, Step, Stream

MAX_STEPS = 30
MAX_STEPS_WITH_IMAGES = 10
SCANNED = 20_000  # samples of a step in which an example of each class is searched


def html_of(stream: Stream) -> str:
    """A table with a row per step."""
    steps = stream.steps[:MAX_STEPS]
    splits = [name for name in SPLITS if any(name in step.splits for step in steps)]
    has_images = is_image(stream)
    classes = [str(name) for name in stream.classes[:MAX_CLASSES]]
    days = [step.days() for step in steps]
    dated = ["from", "to"] if any(days) else []
    heads = ["step", *dated, *splits, *(classes if has_images else [])]
    rows: list[list[object]] = []
    for i, step in enumerate(steps):
        sizes = (len(step.splits[name]) if name in step.splits else "–" for name in splits)
        rows.append([step.name, *((days[i] or ("–", "–")) if dated else ()), *sizes])
        rows[-1] += _images(step, classes) if has_images and i < MAX_STEPS_WITH_IMAGES else []
    if len(steps) < len(stream.steps):
        rows.append([f"… and {len(stream.steps) - len(steps)} more steps"])
    shape = " × ".join(map(str, stream.x_shape)) or "texts"
    names = ", ".join([*classes, *(["…"] if len(stream.classes) > len(classes) else [])])
    title = f"{stream.name}: {len(stream.steps)} steps, {len(stream.classes)} classes: {names}"
    note = f"A sample: {shape}." if len(stream.x_shape) != 1 else f"A sample: {shape} features."
    return table(title, heads, rows, note)


def _images(step: Step, classes: list[str]) -> list[Any]:
    """The first image of each class, or nothing."""
    from PIL import Image

    split = next(step.splits[name] for name in SPLITS if name in step.splits).part(0, SCANNED)
    cells: list[Any] = [""] * len(classes)
    for label, positions in enumerate(examples(split, len(classes))):
        for position in positions:
            buffer = io.BytesIO()
            Image.fromarray(np.asarray(split.x[position])).save(buffer, "PNG", compress_level=1)
            cells[label] = Thumbnail(buffer.getvalue(), f"{classes[label]}, step {step.name}")
    return cells
