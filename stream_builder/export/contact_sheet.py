"""Contact sheets of a stream: a row per step, columns by class, as in Seq-to-Final's figures 2 to 7."""

import io
from pathlib import Path

import numpy as np

from driftline.curate.core.atomic_io import write_bytes
from driftline.curate.core.errors import IncompatibleStream
from driftline.stream_builder.stream import Split, Stream

MAX_CLASSES = 12
SIDE, GAP, LEFT, TOP = 96, 6, 150, 52  # pixels: of an image, between two, for the names of steps and of classes


def examples(split: Split, classes: int, each: int = 1) -> list[list[int]]:
    """Positions of the first `each` samples of each of the first `classes` classes."""
    y = np.asarray(split.y)
    return [np.flatnonzero(y == label)[:each].tolist() for label in range(classes)]


def write_contact_sheet(stream: Stream, path: Path, split: str = "train", each: int = 1) -> Path:
    """Write a PNG with the first `each` images of every class in every step, by their label in that step.

    Raises IncompatibleStream for a stream without images.
    """
    from PIL import Image, ImageDraw, ImageFont

    steps = [step for step in stream.steps if split in step.splits]
    if not steps or np.dtype(steps[0][split].x.dtype) != np.uint8:
        raise IncompatibleStream(f"The stream {stream.name!r} has no images in {split}.", "Expected uint8 images.")
    classes = min(MAX_CLASSES, len(stream.classes))
    columns, font = classes * each, ImageFont.load_default(13)
    sheet = Image.new("RGB", (LEFT + columns * (SIDE + GAP) + GAP, TOP + len(steps) * (SIDE + GAP) + GAP), "white")
    draw = ImageDraw.Draw(sheet)
    draw.text((GAP, GAP), stream.name, fill="black", font=ImageFont.load_default(15))
    for label in range(classes):
        left = LEFT + label * each * (SIDE + GAP)
        draw.text((left, TOP - 20), str(stream.classes[label])[: 12 * each], fill="black", font=font)
    for row, step in enumerate(steps):
        top = TOP + row * (SIDE + GAP)
        draw.text((LEFT - GAP, top + SIDE // 2), step.name[:18], fill="black", font=font, anchor="rm")
        for label, positions in enumerate(examples(step[split], classes, each)):
            for k, position in enumerate(positions):
                image = Image.fromarray(np.asarray(step[split].x[position]))
                image.thumbnail((SIDE, SIDE))  # small images grow below, whose pixels stay squares
                factor = max(1, SIDE // max(image.size))
                image = image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
                sheet.paste(image, (LEFT + (label * each + k) * (SIDE + GAP), top))
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG")
    write_bytes(path, buffer.getvalue())
    return path
