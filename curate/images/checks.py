"""Checks of downloaded image bytes: a complete image in a known format, of a permitted size."""

import warnings
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from driftline.curate.core.settings import Positive, Section
from driftline.curate.foreign.images import NotRGB, kind_of, missing_extra, open_bytes, orientation_of, prepared, work
from driftline.curate.images import camera_raw
from driftline.curate.images.changes import NAMES, NONE, PREVIEW, as_plain, joined

EXTENSIONS = {  # Pillow's name of the format → file extension
    "JPEG": "jpg", "MPO": "jpg", "PNG": "png", "GIF": "gif", "WEBP": "webp", "BMP": "bmp", "TIFF": "tif",
    "HEIF": "jpg", "AVIF": "jpg", "JXL": "jpg", "JPEG2000": "jpg",  # converted
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
    """pixels of the upright picture"""
    height: int | None = None
    """pixels of the upright picture"""
    converted: bytes | None = None
    """what to store instead of a HEIC, AVIF, JPEG XL, JPEG 2000 or RAW file: a JPEG"""
    changes: str = NONE
    """what was done to the bytes of `converted`"""
    shown: str = NONE
    """what is done to the stored pixels wherever the picture is read (`prepared`)"""


def check_image(data: bytes, limits: ImageLimits) -> ImageCheck:
    """Decode the complete image and check it against `limits`. Never raises for bad bytes."""
    from PIL import Image, UnidentifiedImageError

    if not data:
        return ImageCheck("empty_body")
    if len(data) < limits.min_bytes:
        return ImageCheck("too_few_bytes", f"{len(data)} bytes")
    if len(data) > limits.max_bytes:
        return ImageCheck("too_many_bytes", f"{len(data)} bytes")
    if (missing := missing_extra(kind_of(data))) is not None:
        return ImageCheck(*missing)
    if camera_raw.is_raw(data):
        return _of_preview(data, limits)
    converted, changes, shown = None, NONE, NONE
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with open_bytes(data) as image:
                format_, (width, height) = image.format, image.size
                if format_ not in EXTENSIONS:
                    return ImageCheck("unsupported_format", format_)
                if width * height > limits.max_pixels or max(width, height) > limits.max_edge:
                    return ImageCheck("too_many_pixels", f"{width} × {height}")
                if (scans := work(data, image)) is not None:
                    return ImageCheck("too_many_pixels", scans)
                if format_ == "JPEG":
                    image.draft("L", (1, 1))  # decodes every coefficient but computes fewer pixels
                drafted = image.size != (width, height)
                picture = prepared(image)
                if not drafted:
                    width, height = picture.image.size
                elif picture.swapped:
                    width, height = height, width
                if width * height > limits.max_pixels or max(width, height) > limits.max_edge:
                    return ImageCheck("too_many_pixels", f"{width} × {height}")  # a later page
                shown = joined(*picture.steps)
                if format_ in NAMES:
                    converted, changes = as_plain(image, picture)
                    shown = NONE  # the JPEG is as the picture is
    except Image.DecompressionBombError as error:
        return ImageCheck("too_many_pixels", str(error))
    except NotRGB as error:
        return ImageCheck("not_rgb", str(error))
    except UnidentifiedImageError:
        return ImageCheck("not_an_image", repr(data[:40]))
    except Exception as error:  # Pillow's decoders raise OSError, SyntaxError, struct.error and others
        return ImageCheck("broken_image", str(error)[:200])
    if min(width, height) < limits.min_edge:
        return ImageCheck("too_small", f"{width} × {height}")
    if limits.max_aspect is not None and max(width, height) > limits.max_aspect * min(width, height):
        return ImageCheck("too_long", f"{width} × {height}")
    return ImageCheck(
        None, None, EXTENSIONS[format_], width, height=height, converted=converted, changes=changes, shown=shown
    )  # fmt: skip


def shown_as(data: bytes) -> str:
    """What `ImageCheck.shown` says of an image that passed its check before; of most JPEGs, nothing is decoded."""
    with open_bytes(data) as image:
        if image.format == "JPEG" and image.mode != "CMYK" and orientation_of(image) == 1:
            return NONE
        return joined(*prepared(image).steps)


def _of_preview(data: bytes, limits: ImageLimits) -> ImageCheck:
    """The largest preview of a RAW file that can be read; if there is none, why the largest cannot."""
    checked = [ImageCheck("unsupported_format", camera_raw.NO_PREVIEW)]
    for preview in camera_raw.previews(data):
        check = check_image(preview, limits)
        if check.reason is None:
            return replace(check, converted=preview, changes=PREVIEW)
        checked.append(check)
    return checked[min(1, len(checked) - 1)]
