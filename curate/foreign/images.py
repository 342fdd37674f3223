"""The one way to open an image: within limits of pixels and work, decided by its first bytes, as people see it.

`prepared` gives every picture upright (EXIF), in RGB of 8 bits, without transparency: what a person sees, a model sees.
"""

import io
import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftline.curate.core.errors import BadInput, DriftlineError, reason
from driftline.curate.core.late import Image, np
from driftline.curate.foreign.limits import DECODING, FRAME_PIXELS, FRAMES

if TYPE_CHECKING:  # settings are read without numpy
    import numpy.typing as npt

PREPARATION = 2
"""version of `prepared`: raised when it gives other pixels. 1: as stored (never upright, transparency and 16 bits cut
off); vectors of different versions are not mixed"""
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")  # of files that Pillow reads alone
START_OF_SCAN = re.compile(rb"\xff\xda")
ORIENTATION, PHOTOMETRIC, BITS = 0x0112, 0x0106, 0x0102
GREY = ("I;16", "I;16B", "I;16L", "I;16N", "I", "F")  # modes of more than 8 bits
BEHIND = (255, 255, 255)  # what shows through transparent parts: white
BLOCK = 1 << 20  # pixels that are scaled at a time

# What was done to the stored pixels, in words: the record of a photo joins them
TURNED = "turned upright"
FIRST = "first image only"
LATER = "image {}, the first that is not blank"
OPAQUE = "transparency over white"
SCALED = "{} grey scaled to 8 bits"
CUT = "16-bit colours cut to 8 bits"
PROFILE, NO_PROFILE = "CMYK to sRGB by its profile", "CMYK to sRGB without a profile"
AS_READ = {"MPO": {FIRST}, "TIFF": {FIRST, TURNED}}  # what other readers of a format do, too


# Pillow logs what it raises next. Python prints a message of no handler, here without the photo's name.
logging.getLogger("PIL").addHandler(logging.NullHandler())


class NotRGB(BadInput):
    """An image whose values do not say how they look."""


@dataclass(frozen=True)
class Picture:
    """An image as people see it."""

    image: "Image.Image"
    """decoded, RGB"""
    steps: tuple[str, ...] = ()
    """what was done to the stored pixels, in words"""
    swapped: bool = False
    """whether width and height are those of the stored pixels, exchanged"""


@contextmanager
def open_image(source: bytes | Path, what: object) -> "Iterator[Image.Image]":
    """A Pillow image, for the block in which it is decoded. what: its name, for messages.

    Raises BadInput for bytes that are no image, whatever the decoder says, and for an image whose pixels times scans
    exceed DECODING. A file that cannot be opened raises OSError.
    """
    data = source.read_bytes() if isinstance(source, Path) else source
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with open_bytes(data) as image:
                if (scans := work(data, image)) is not None:
                    raise BadInput(f"{what} is an image of {scans}.", "Expected less to decode.")
                yield image
    except DriftlineError:
        raise
    except Exception as error:  # Pillow's decoders raise OSError, SyntaxError, struct.error and others
        raise BadInput(f"{what} cannot be decoded ({reason(error)}).", "Expected an image.") from None


def open_bytes(data: bytes) -> "Image.Image":
    """A Pillow image, opened by the decoder that its first bytes name. Raises as Pillow does, and BadInput for a format
    whose extra is not installed."""
    kind = kind_of(data)
    if (missing := missing_extra(kind)) is not None:
        raise BadInput("The image cannot be read.", "Expected a format that is installed.", f"{missing[1]}.")
    if kind is None:  # a rare format of Pillow's own; what extras have registered must not matter
        Image.init()
    kinds = [name for name in Image.ID if name not in ("HEIF", "JXL")] if kind is None else [kind]
    return Image.open(io.BytesIO(data), formats=kinds)


def as_rgb(image: "Image.Image") -> "Image.Image":
    """An opened image in RGB, decoded and upright: the one place that says how."""
    return prepared(image).image


def read_rgb(source: bytes | Path, what: object) -> "Image.Image":
    """An image in RGB, decoded and upright. Raises as `open_image`."""
    with open_image(source, what) as image:
        return as_rgb(image)


def square(image: "Image.Image", edge: int) -> "npt.NDArray[np.uint8]":
    """(edge, edge, 3): an opened image in RGB, its shorter edge resized to `edge`, the centre cropped."""
    from PIL.ImageOps import fit

    return np.asarray(fit(as_rgb(image), (edge, edge), Image.Resampling.BICUBIC))


def prepared(image: "Image.Image") -> Picture:
    """An opened image as people see it: of several frames the first that is not blank, in RGB, upright.

    Transparent parts show white. Grey of 9 to 16 bits is scaled from all that its bits can hold. CMYK is converted by
    the file's ICC profile. Only an orientation of 2 to 8 turns (EXIF 2.32, 4.6.4; others are stored as shown).

    Raises NotRGB for grey of more bits and for floats, and as Pillow for damaged pixels.
    """
    several = bool(getattr(image, "is_animated", False)) or (
        image.format == "HEIF" and getattr(image, "n_frames", 1) > 1
    )
    first = _frame(image)
    if not several:
        return first
    blank = _is_blank(first.image)
    at, left = 0, FRAME_PIXELS
    while blank and at + 1 < FRAMES and left > 0:
        at += 1
        try:
            image.seek(at)
            left -= image.width * image.height
            later = _frame(image) if left > 0 else first
        except Exception:  # the end of the file, or a frame that is damaged
            break
        if not _is_blank(later.image):
            return Picture(later.image, (LATER.format(at + 1), *later.steps))
    return Picture(first.image, (FIRST, *first.steps), first.swapped)


def _is_blank(image: "Image.Image") -> bool:
    """Whether all pixels have one colour."""
    return all(channel.getextrema()[0] == channel.getextrema()[1] for channel in image.split())


def _frame(image: "Image.Image") -> Picture:
    """The current frame."""
    turned = image.info.get("original_orientation") or 1  # by the decoder of HEIC
    turned = orientation_of(image) if image.format == "TIFF" else turned  # by Pillow, when it decodes
    deep = image.format in ("PNG", "TIFF") and ";16" in str(getattr(image, "tile", ""))
    image.load()
    orientation = orientation_of(image)
    rgb, steps = _colours(image)
    if deep and image.mode not in GREY:
        steps.append(CUT)
    if orientation > 1:
        way = Image.Transpose
        ways = (
            way.FLIP_LEFT_RIGHT, way.ROTATE_180, way.FLIP_TOP_BOTTOM, way.TRANSPOSE, way.ROTATE_270, way.TRANSVERSE,
            way.ROTATE_90,
        )  # fmt: skip
        rgb = rgb.transpose(ways[orientation - 2])
    if max(orientation, turned) > 1:
        steps.append(TURNED)
    return Picture(rgb, tuple(steps), orientation > 4)


def orientation_of(image: "Image.Image") -> int:
    """EXIF's orientation of an opened image: 2 to 8; 1 for upright, and where it is missing, damaged or another."""
    if image.format == "JXL":  # its decoder turns, and the copy in EXIF must not count (ISO/IEC 18181-1, D.3)
        return 1
    if image.format == "JPEG" and not {"exif", "xmp"} & image.info.keys():  # as `getexif`, without its work
        return 1
    with suppress(Exception):  # Pillow raises many kinds for damaged tags
        orientation = image.getexif().get(ORIENTATION, 1)
        return orientation if isinstance(orientation, int) and 1 <= orientation <= 8 else 1
    return 1


def shown_alike(image: "Image.Image") -> bool:
    """Whether an opened image is one that every reader shows alike, by its header alone: most photos are not decoded to
    know it. False: `prepared` says."""
    still = image.format in ("JPEG", "PNG") and not getattr(image, "is_animated", False)
    deep = ";16" in str(getattr(image, "tile", ""))
    plain = image.mode in ("RGB", "L") and not image.has_transparency_data and not deep
    return still and plain and orientation_of(image) == 1


def _colours(image: "Image.Image") -> "tuple[Image.Image, list[str]]":
    """A decoded image in RGB, and what was done."""
    if image.mode in GREY:
        return _scaled(image)
    if image.mode == "CMYK":
        rgb = _by_profile(image)
        return rgb or image.convert("RGB"), [PROFILE if rgb else NO_PROFILE]
    if image.has_transparency_data:
        key = image.info.get("transparency")
        if isinstance(key, tuple) and max(key) > 255:  # tRNS of 16 bits, whose colours Pillow cuts to 8
            image.info["transparency"] = tuple(value >> 8 for value in key)
        rgba = image.convert("RGBA")
        if rgba.getchannel("A").getextrema() != (255, 255):
            white = Image.new("RGBA", rgba.size, (*BEHIND, 255))
            return Image.alpha_composite(white, rgba).convert("RGB"), [OPAQUE]
    return image.convert("RGB"), []


def _by_profile(image: "Image.Image") -> "Image.Image | None":
    """A CMYK image in sRGB by its ICC profile; None without one that can be used."""
    profile = image.info.get("icc_profile")
    with suppress(Exception):  # a damaged profile, or one of other colours
        from PIL import ImageCms

        if profile:
            srgb = ImageCms.createProfile("sRGB")
            return ImageCms.profileToProfile(image, io.BytesIO(profile), srgb, outputMode="RGB")
    return None


def _scaled(image: "Image.Image") -> "tuple[Image.Image, list[str]]":
    """Grey of 9 to 16 bits as RGB, by all that its bits can hold. Raises NotRGB for more bits and for floats."""
    if not image.mode.startswith("I;16"):
        raise NotRGB("The image is grey in floats, or in whole numbers of 32 bits or with a sign.", "Expected 16 bits.")
    tags: Any = getattr(image, "tag_v2", {})
    (bits,) = tags.get(BITS, (16,))
    pixels = np.asarray(image)
    grey = np.empty(pixels.shape, np.uint8)
    rows = max(1, BLOCK // max(1, image.width))
    for start in range(0, len(pixels), rows):
        grey[start : start + rows] = np.rint(np.minimum(pixels[start : start + rows] * (255 / (2.0**bits - 1)), 255))
    if tags.get(PHOTOMETRIC) == 0:  # white is zero: Pillow turns only 8 bits round
        grey = 255 - grey
    steps = [SCALED.format(f"{bits}-bit")]
    if isinstance(key := image.info.get("transparency"), int) and (clear := pixels == key).any():
        grey[clear] = 255
        steps.append(OPAQUE)
    return Image.fromarray(grey).convert("RGB"), steps


def work(data: bytes, image: "Image.Image") -> str | None:
    """None for an image that may be decoded; else its size and number of scans.

    A decoder visits every pixel in each scan of a progressive JPEG: a file of some hundred kilobytes may hold a
    thousand nearly empty scans of a hundred megapixels. data: the file. image: opened by Pillow, not decoded.
    """
    width, height = image.size
    scans = 1
    if image.format in ("JPEG", "MPO") and image.info.get("progressive"):
        scans = max(1, sum(1 for _ in START_OF_SCAN.finditer(data)))
    return f"{width} × {height} pixels in {scans:,} scans" if width * height * scans > DECODING else None


HEAD = 64
"""bytes from the beginning of a file that say what it is"""
STARTS = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"BM", "BMP"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
    (b"II+\0", "TIFF"),
    (b"MM\0+", "TIFF"),
    (b"\xff\x0a", "JXL"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "JXL"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG2000"),
    (b"\xff\x4f\xff\x51", "JPEG2000"),
)
HEIC_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"}
AVIF_BRANDS = {b"avif", b"avis"}
ANY_BRANDS = {b"mif1", b"msf1", b"mif2"}  # containers: the compatible brands say what is inside
HEIC_NEEDS = "HEIC needs the extra heic: pip install 'driftline[heic]'"
JXL_NEEDS = "JPEG XL needs the extra jxl: pip install 'driftline[jxl]'"


def kind_of(data: bytes) -> str | None:
    """Pillow's name of the format that bytes begin as; None: no format that is read. data: HEAD bytes or more.

    >>> kind_of(bytes.fromhex("ffd8ffe0")), kind_of(b"RIFF....WEBPVP8 "), kind_of(b"text")
    ('JPEG', 'WEBP', None)
    """
    if data[4:8] == b"ftyp":
        size = min(int.from_bytes(data[:4], "big"), HEAD)
        brands = [data[at : at + 4] for at in (8, *range(16, size, 4))]
        if brands[0] in AVIF_BRANDS or (brands[0] in ANY_BRANDS and AVIF_BRANDS & {*brands}):
            return "AVIF"
        return "HEIF" if brands[0] in HEIC_BRANDS | ANY_BRANDS else None
    if data[:4] == b"RIFF":
        return "WEBP" if data[8:12] == b"WEBP" else None
    if data[:2] == b"BM" and data[15:18] != b"\0\0\0":  # a text: no header of BMP has 256 bytes
        return None
    return next((kind for start, kind in STARTS if data.startswith(start)), None)


@cache
def reads_heic() -> bool:
    """Whether HEIC can be read; teaches Pillow to do so in this process."""
    try:
        import pillow_heif
    except ImportError:
        return False
    pillow_heif.register_heif_opener()
    return True


@cache
def reads_jxl() -> bool:
    """Whether JPEG XL can be read; teaches Pillow to do so in this process."""
    try:
        import pillow_jxl  # noqa: F401  importing it registers the format
    except ImportError:
        return False
    return True


def missing_extra(kind: str | None) -> tuple[str, str] | None:
    """(reason, sentence) for a format whose extra is not installed; else None, and Pillow can read it."""
    if kind == "HEIF" and not reads_heic():
        return "needs_heic_extra", HEIC_NEEDS
    if kind == "JXL" and not reads_jxl():
        return "needs_jxl_extra", JXL_NEEDS
    return None
