"""Images from outside are opened here: within limits of pixels and work, with one kind of error."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from driftline.curate.core.errors import BadInput, DriftlineError, reason
from driftline.curate.core.outside.limits import DECODING

if TYPE_CHECKING:  # settings are read without numpy
    import numpy as np
    import numpy.typing as npt
    from PIL.Image import Image

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")  # of files that Pillow reads alone
START_OF_SCAN = re.compile(rb"\xff\xda")


@contextmanager
def open_image(source: bytes | Path, what: object) -> Iterator[Image]:
    """A Pillow image, for the block in which it is decoded. what: its name, for messages.

    Raises BadInput for bytes that are no image, whatever the decoder says, and for an image whose pixels times scans
    exceed DECODING. A file that cannot be opened raises OSError.
    """
    import PIL.Image

    data = source.read_bytes() if isinstance(source, Path) else source
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with PIL.Image.open(io.BytesIO(data)) as image:
                if (scans := work(data, image)) is not None:
                    raise BadInput(f"{what} is an image of {scans}.", "Expected less to decode.")
                yield image
    except DriftlineError:
        raise
    except Exception as error:  # Pillow's decoders raise OSError, SyntaxError, struct.error and others
        raise BadInput(f"{what} cannot be decoded ({reason(error)}).", "Expected an image.") from None


def as_rgb(image: Image) -> Image:
    """An opened image in RGB, decoded: the one place that says how."""
    return image.convert("RGB")


def read_rgb(source: bytes | Path, what: object) -> Image:
    """An image in RGB, decoded. Raises as `open_image`."""
    with open_image(source, what) as image:
        return as_rgb(image)


def square(image: Image, edge: int) -> npt.NDArray[np.uint8]:
    """(edge, edge, 3): an opened image in RGB, its shorter edge resized to `edge`, the centre cropped."""
    import numpy as np
    from PIL.Image import Resampling
    from PIL.ImageOps import fit

    return np.asarray(fit(as_rgb(image), (edge, edge), Resampling.BICUBIC))


def work(data: bytes, image: Image) -> str | None:
    """None for an image that may be decoded; else its size and number of scans.

    A decoder visits every pixel in each scan of a progressive JPEG: a file of some hundred kilobytes may hold a
    thousand nearly empty scans of a hundred megapixels. data: the file. image: opened by Pillow, not decoded.
    """
    width, height = image.size
    scans = 1
    if image.format in ("JPEG", "MPO") and image.info.get("progressive"):
        scans = max(1, sum(1 for _ in START_OF_SCAN.finditer(data)))
    return f"{width} × {height} pixels in {scans:,} scans" if width * height * scans > DECODING else None
