"""Files and dates of the world as real collections have them: sideways, 16-bit, transparent, from a reset clock."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, ImageDraw

from driftline.pipelines.demo.draw import Rng, jpeg

TURNED, DEEP, CLEAR, RESET = "turned", "deep", "clear", "reset"
SHARE = 0.025  # of the photos, for each kind
RESET_DAY = "2000-01-01"  # on which a camera begins to count that lost its battery


def oddity(age: float, rng: Rng) -> str | None:
    """What is odd about a photo of an age, or None: turned ones become more as sensors of orientation spread."""
    place = float(rng.random()) / SHARE
    for kind, share in ((TURNED, 2 * age), (DEEP, 1), (CLEAR, 1), (RESET, 1)):
        if place < share:
            return kind
        place -= share
    return None


def stored(image: Image.Image, kind: str | None, rng: Rng) -> bytes:
    """The file of an RGB photo: a JPEG; if turned, sideways with EXIF's orientation; if deep, a grey PNG of 16 bits; if
    clear, a PNG in which only an oval is visible and the pixels around it stay below an alpha of 0."""
    if kind == TURNED:
        way, orientation = ((Image.Transpose.ROTATE_90, 6), (Image.Transpose.ROTATE_270, 8))[int(rng.integers(2))]
        exif = Image.Exif()
        exif[0x0112] = orientation
        return jpeg(image.transpose(way), exif=exif.tobytes())
    if kind == DEEP:
        return _png(Image.fromarray(np.asarray(image.convert("L"), np.uint16) * 257))
    if kind == CLEAR:
        oval = Image.new("L", image.size)
        ImageDraw.Draw(oval).ellipse((0, 0, *image.size), fill=255)
        return _png(Image.merge("RGBA", (*image.split(), oval)))
    return jpeg(image)


def reset_time(rng: Rng) -> str:
    """A capture time soon after the clock began, as YFCC writes it."""
    minute, second = rng.integers(60, size=2).tolist()
    return f"{RESET_DAY} 00:{minute:02}:{second:02}.0"


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()
