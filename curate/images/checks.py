"""Checking image bytes that came from outside: is this a whole image of a sane size?"""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass

FORMATS = {
    "JPEG": "jpg",
    "MPO": "jpg",
    "PNG": "png",
    "GIF": "gif",
    "WEBP": "webp",
    "BMP": "bmp",
    "TIFF": "tif",
}


@dataclass(frozen=True)
class ImageRules:
    """min_edge, max_aspect: CLEAR's download filters (README: 120 and 2; the released data shows none).
    max_pixels, max_edge: guard against decompression bombs. max_bytes: guards against endless bodies. min_bytes:
    CLEAR's code keeps files of more than 10."""

    min_edge: int = 1
    max_aspect: float | None = None
    max_pixels: int = 100_000_000
    max_edge: int = 30_000
    max_bytes: int = 50_000_000
    min_bytes: int = 11


@dataclass(frozen=True)
class Looked:
    """What a look at the bytes found: `fault` is None for a good image."""

    fault: str | None
    detail: str | None = None
    extension: str | None = None
    width: int | None = None
    height: int | None = None


def look(data: bytes, rules: ImageRules) -> Looked:
    """Decode the whole image and judge it; never raises for bad bytes."""
    from PIL import Image, UnidentifiedImageError

    if not data:
        return Looked("empty_body")
    if len(data) < rules.min_bytes:
        return Looked("too_few_bytes", f"{len(data)} bytes")
    if len(data) > rules.max_bytes:
        return Looked("too_many_bytes", f"{len(data)} bytes")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data)) as image:
                kind, (width, height) = image.format, image.size
                if kind not in FORMATS:
                    return Looked("unsupported_format", kind)
                if width * height > rules.max_pixels or max(width, height) > rules.max_edge:
                    return Looked("too_many_pixels", f"{width} × {height}")
                image.draft("L", (1, 1))  # JPEG: reads every coefficient, computes an eighth of the pixels
                image.load()
    except Image.DecompressionBombError as error:
        return Looked("too_many_pixels", str(error))
    except UnidentifiedImageError:
        return Looked("not_an_image", repr(data[:40]))
    except Exception as error:  # Pillow's decoders raise OSError, SyntaxError, struct.error, …
        return Looked("broken_image", str(error)[:200])
    if min(width, height) < rules.min_edge:
        return Looked("too_small", f"{width} × {height}")
    if rules.max_aspect is not None and max(width, height) > rules.max_aspect * min(width, height):
        return Looked("too_long", f"{width} × {height}")
    return Looked(None, None, FORMATS[kind], width, height)
