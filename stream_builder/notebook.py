"""A stream as HTML for notebooks: steps, sizes, drift and some images."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape
from math import prod

import numpy as np

from curate.core.errors import DriftlineError
from stream_builder.export.contact_sheet import MAX_CLASSES, examples
from stream_builder.lazy_images import LazyImages
from stream_builder.measures.shift_distance import drift
from stream_builder.stream import SPLITS, Split, Step, Stream

MAX_STEPS = 30
MAX_STEPS_WITH_IMAGES = 10
MAX_DIMENSIONS = 1024  # of features whose drift is computed
THUMBNAIL = 40  # pixels
SCANNED = 20_000  # samples in which examples of the classes are searched


def html_of(stream: Stream) -> str:
    """A table with a row per step. Takes about a second at most, also for large streams."""
    steps = stream.steps[:MAX_STEPS]
    names = [name for name in SPLITS if any(name in step.splits for step in steps)]
    distances = _drift(stream)
    with_images = len(stream.x_shape) == 3 and stream.x_shape[-1] == 3
    head = ["step", *names, *(["drift"] if distances else []), *(["one image per class"] if with_images else [])]
    rows = []
    for i, step in enumerate(steps):
        cells = [escape(step.name), *(f"{len(step.splits[n]):,}" if n in step.splits else "–" for n in names)]
        cells += [f"{distances[i]:.3g}"] if distances else []
        cells += [_strip(stream, step) if i < MAX_STEPS_WITH_IMAGES else ""] if with_images else []
        rows.append(_row(cells, "td"))
    shape = " × ".join(map(str, stream.x_shape)) or "texts"
    classes = ", ".join(escape(str(name)) for name in stream.classes[:MAX_CLASSES])
    more_steps = f"<p>… and {len(stream.steps) - len(steps)} more steps</p>" if len(steps) < len(stream.steps) else ""
    more_classes = ", …" if len(stream.classes) > MAX_CLASSES else ""
    return (
        f"<div><p><b>{escape(stream.name)}</b>: {len(stream.steps)} steps, samples: {shape}, "
        f"{len(stream.classes)} classes: {classes}{more_classes}</p>"
        f"<table><thead>{_row(head, 'th')}</thead><tbody>{''.join(rows)}</tbody></table>{more_steps}</div>"
    )


def _row(cells: Sequence[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{cell}</{tag}>' for cell in cells)}</tr>"


def _drift(stream: Stream) -> list[float] | None:
    """Distance of each step to the last step's test data; None if it is slow or undefined."""
    lazy = any(isinstance(split.x, LazyImages) for step in stream.steps[:1] for split in step.splits.values())
    wide = len(stream.x_shape) == 1 and prod(stream.x_shape) > MAX_DIMENSIONS
    if lazy or wide or not stream.x_shape or len(stream.steps) > MAX_STEPS:
        return None
    try:
        return drift(stream)
    except DriftlineError:  # one step, or no test data
        return None


def _strip(stream: Stream, step: Step) -> str:
    """The first image of each class, side by side in one PNG; grey if there is none."""
    from PIL import Image

    split: Split | None = next((step.splits[name] for name in SPLITS if name in step.splits), None)
    if split is None:
        return ""
    split = split.part(0, SCANNED)
    labels = range(min(MAX_CLASSES, len(stream.classes)))
    strip = Image.new("RGB", (THUMBNAIL * len(labels), THUMBNAIL), "lightgrey")
    for label, positions in enumerate(examples(split, len(labels))):
        for position in positions:
            image = Image.fromarray(np.asarray(split.x[position])).resize((THUMBNAIL, THUMBNAIL))
            strip.paste(image, (label * THUMBNAIL, 0))
    buffer = io.BytesIO()
    strip.save(buffer, "PNG")
    alt = escape(f"{step.name}: {', '.join(str(stream.classes[label]) for label in labels)}", quote=True)
    return f"<img alt='{alt}' src='data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}'>"
