"""Checks of downloaded image bytes: a complete image in a known format, of a permitted size."""

from __future__ import annotations

import io
import warnings
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from driftline.curate.core.outside.dates import from_exif
from driftline.curate.core.outside.images import work
from driftline.curate.core.settings import Positive, Section
from driftline.curate.images import camera_raw
from driftline.curate.images.changes import NONE, PREVIEW
from driftline.curate.images.phone_formats import HEIC_NEEDS, NAMES, as_jpeg, is_heic, reads_heic

EXTENSIONS = {  # Pillow's name of the format → file extension
    "JPEG": "jpg", "MPO": "jpg", "PNG": "png", "GIF": "gif", "WEBP": "webp", "BMP": "bmp", "TIFF": "tif",
    "HEIF": "jpg", "AVIF": "jpg",  # converted
}  # fmt: skip


class ImageLimits(Section):
    """Which images are kept."""

    min_bytes: Positive = 11
    """smaller files are not images (CLEAR's code: more than 10)"""
    min_edge: Positive = 1
    """shorter edge, pixels (CLEAR's README: 120; its released data shows no such limit)"""
    max_aspect: Annotated[float, Field(ge=1)] | None = None
    """longer edge / shorter edge (CLEAR's README: 2; its released data shows no such limit; null: any)"""
    max_pixels: Positive = 100_000_000
    """limit against decompression bombs"""
    max_edge: Positive = 30_000
    """longer edge, pixels: limit against decompression bombs"""
    max_bytes: Positive = 50_000_000
    """limit against endless files"""


@dataclass(frozen=True)
class ImageCheck:
    """The result of `check_image`: a reason to drop the image, or what it is."""

    reason: str | None
    """why the image is dropped; None for a good image"""
    detail: str | None = None
    """more about the reason, for people"""
    extension: str | None = None
    """of the file, without a dot"""
    width: int | None = None
    """pixels"""
    height: int | None = None
    """pixels"""
    converted: bytes | None = None
    """what to store instead of a HEIC, AVIF or RAW file: a JPEG"""
    taken: int | None = None
    """EXIF's capture time: seconds since 1970 of the camera's clock"""
    changes: str = NONE
    """what was done to the bytes of `converted`"""


def check_image(data: bytes, limits: ImageLimits) -> ImageCheck:
    """Decode the complete image and check it against `limits`. Never raises for bad bytes."""
    from PIL import Image, UnidentifiedImageError

    if not data:
        return ImageCheck("empty_body")
    if len(data) < limits.min_bytes:
        return ImageCheck("too_few_bytes", f"{len(data)} bytes")
    if len(data) > limits.max_bytes:
        return ImageCheck("too_many_bytes", f"{len(data)} bytes")
    if is_heic(data) and not reads_heic():
        return ImageCheck("unsupported_format", HEIC_NEEDS)
    if camera_raw.is_raw(data):
        return _of_preview(data, limits)
    converted, date, changes = None, None, NONE
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data)) as image:
                format_, (width, height) = image.format, image.size
                if format_ not in EXTENSIONS:
                    return ImageCheck("unsupported_format", format_)
                if width * height > limits.max_pixels or max(width, height) > limits.max_edge:
                    return ImageCheck("too_many_pixels", f"{width} × {height}")
                if (scans := work(data, image)) is not None:
                    return ImageCheck("too_many_pixels", scans)
                image.draft("L", (1, 1))  # JPEG only: decodes every coefficient but computes fewer pixels
                image.load()
                with suppress(Exception):  # damaged EXIF is no reason to drop an image
                    date, _ = from_exif(image.getexif())
                if format_ in NAMES:
                    converted, changes = as_jpeg(image)
    except Image.DecompressionBombError as error:
        return ImageCheck("too_many_pixels", str(error))
    except UnidentifiedImageError:
        return ImageCheck("not_an_image", repr(data[:40]))
    except Exception as error:  # Pillow's decoders raise OSError, SyntaxError, struct.error and others
        return ImageCheck("broken_image", str(error)[:200])
    if min(width, height) < limits.min_edge:
        return ImageCheck("too_small", f"{width} × {height}")
    if limits.max_aspect is not None and max(width, height) > limits.max_aspect * min(width, height):
        return ImageCheck("too_long", f"{width} × {height}")
    taken = None if date is None else date[0]
    return ImageCheck(
        None, None, EXTENSIONS[format_], width, height=height, converted=converted, taken=taken, changes=changes
    )


def _of_preview(data: bytes, limits: ImageLimits) -> ImageCheck:
    """The largest preview of a RAW file that can be read; if there is none, why the largest cannot."""
    checked = [ImageCheck("unsupported_format", camera_raw.NO_PREVIEW)]
    for preview in camera_raw.previews(data):
        check = check_image(preview, limits)
        if check.reason is None:
            return replace(check, converted=preview, changes=PREVIEW)
        checked.append(check)
    return checked[min(1, len(checked) - 1)]
