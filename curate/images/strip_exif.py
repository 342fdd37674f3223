"""Removes personal metadata (EXIF with GPS, XMP, IPTC, comments) from image files without changing a pixel.

The container of a JPEG or PNG is parsed and written again; compressed image data is copied unchanged. Only what affects
how the image looks stays: colour profiles, Adobe's marker, animation and orientation. Unknown parts, previews and bytes
after the end go. Other formats become PNG.
"""

import re
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import suppress

from driftline.curate.core.late import Image
from driftline.curate.foreign.images import FIRST, ORIENTATION, open_bytes, open_image, prepared
from driftline.curate.images import changes
from driftline.curate.images.changes import as_plain

MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")  # a marker that ends a scan: no stuffed byte, restart or padding
SOI, EOI = b"\xff\xd8", b"\xff\xd9"
PNG = b"\x89PNG\r\n\x1a\n"
PNG_KEEPS = {
    b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"cHRM", b"gAMA", b"iCCP", b"sBIT", b"sRGB", b"cICP", b"mDCV", b"mDCv",
    b"cLLI", b"cLLi", b"bKGD", b"pHYs", b"acTL", b"fcTL", b"fdAT",
}  # fmt: skip
JFIF = b"JFIF\0"
LOOKS = {0xE0: JFIF, 0xE2: b"ICC_PROFILE\0", 0xEE: b"Adobe"}  # what of applications affects how an image looks


def strip_metadata(data: bytes) -> tuple[bytes, str]:
    """(the image without personal metadata, what was done).

    The pixels of the rewritten JPEG or PNG are compared with the original. Other formats, and damaged files that Pillow
    decodes, get their plain form first (`changes.as_plain`): most become PNG, upright.
    """
    with suppress(ValueError, OSError):
        stripped = rewrite_container(data)
        if stripped == data:
            return data, changes.NONE
        if _pixels(stripped) == _pixels(data):
            return stripped, changes.joined(changes.REMOVED, FIRST if _has_several(data) else None)
    with open_image(data, "An image") as image:
        plain, done = as_plain(image, prepared(image))
    return rewrite_container(plain), changes.joined(changes.REMOVED, done)


def rewrite_container(data: bytes) -> bytes:
    """The same JPEG or PNG without personal metadata. Raises ValueError for other formats and broken containers."""
    if data.startswith(SOI):
        return _jpeg(data)
    if data.startswith(PNG):
        return _png(data)
    raise ValueError("not a JPEG or PNG")


def _has_several(data: bytes) -> bool:
    """Whether a JPEG file has several pictures, of which the first stays."""
    with open_bytes(data) as image:
        return image.format == "MPO" and bool(getattr(image, "is_animated", False))


def _pixels(data: bytes) -> tuple[str, tuple[int, int], bytes]:
    with open_bytes(data) as image:
        return image.mode, image.size, image.tobytes()


def _jpeg(data: bytes) -> bytes:
    out, orientation = [SOI], 1
    for marker, content, scan in _segments(data):
        if marker == 0xE1 and content.startswith(b"Exif\0\0"):
            orientation = _orientation(content[6:]) or orientation
        if marker == 0xE0 and content.startswith(JFIF) and len(content) >= 14:
            content = content[:12] + b"\0\0"  # without its thumbnail
        application = 0xE0 <= marker <= 0xEF or marker == 0xFE
        if not application or content.startswith(LOOKS.get(marker, ())):
            out.append(struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content + scan)
    if orientation != 1:
        content = b"Exif\0\0" + _orientation_exif(orientation)
        out.insert(1, struct.pack(">BBH", 0xFF, 0xE1, len(content) + 2) + content)
    return b"".join([*out, EOI])


def _segments(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield (marker, content, scan data after a start of scan) up to the end of the image. Data after it is ignored:
    cameras append previews that have their own GPS position."""
    at = 2
    while True:
        at = data.find(b"\xff", at)  # some cameras leave zeros between segments; decoders skip them, too
        if at < 0 or at + 1 >= len(data):
            raise ValueError("a JPEG without end marker")
        marker = data[at + 1]
        if marker in (0x00, 0x01, 0xFF) or 0xD0 <= marker <= 0xD8:  # padding, or a marker without content
            at += 1 if marker in (0x00, 0xFF) else 2
            continue
        if marker == 0xD9:
            return
        if at + 4 > len(data):
            raise ValueError("a JPEG segment is cut off")
        (size,) = struct.unpack_from(">H", data, at + 2)
        content = data[at + 4 : at + 2 + size]
        if size < 2 or len(content) != size - 2:
            raise ValueError("a JPEG segment is cut off")
        at += 2 + size
        start = at
        if marker == 0xDA:
            if (end := MARKER.search(data, at)) is None:
                raise ValueError("a JPEG scan does not end")
            at = end.start()
        yield marker, content, data[start:at]


def _orientation(tiff: bytes) -> int | None:
    """The orientation (1 to 8) in an EXIF block, or None."""
    exif = Image.Exif()
    with suppress(Exception), warnings.catch_warnings():  # Pillow raises many kinds for damaged tags
        warnings.simplefilter("ignore")
        exif.load(tiff)
        value = exif.get(ORIENTATION)
        return value if isinstance(value, int) and 1 <= value <= 8 else None
    return None


def _orientation_exif(orientation: int) -> bytes:
    """The smallest EXIF block with an orientation: one entry, big-endian."""
    return struct.pack(">4sI H HHIHH I", b"MM\0*", 8, 1, 0x0112, 3, 1, orientation, 0, 0)


def _png(data: bytes) -> bytes:
    out, at = [PNG], len(PNG)
    while at < len(data):
        if at + 12 > len(data):
            raise ValueError("a PNG chunk is cut off")
        size, kind = struct.unpack_from(">I4s", data, at)
        end = at + 12 + size
        if end > len(data):
            raise ValueError("a PNG chunk is cut off")
        orientation = _orientation(data[at + 8 : end - 4]) if kind == b"eXIf" else None
        if orientation not in (None, 1):
            chunk = b"eXIf" + _orientation_exif(orientation or 1)
            out.append(struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)))
        if kind in PNG_KEEPS:
            out.append(data[at:end])
        if kind == b"IEND":
            return b"".join(out)
        at = end
    raise ValueError("a PNG without end chunk")
