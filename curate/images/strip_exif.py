"""Removes personal metadata (EXIF with GPS, XMP, IPTC, comments) from image files without changing a pixel.

The container is parsed and written again; compressed image data is copied unchanged. Only what affects how the image
looks stays: colour profiles, Adobe's marker, animation and orientation. Unknown parts, previews and bytes after the
end go.
"""

from __future__ import annotations

import io
import re
import struct
import zlib
from collections.abc import Iterator
from typing import Any

from driftline.curate.core.outside.images import FIRST, TURNED, open_bytes, prepared
from driftline.curate.images import changes

MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")  # a marker that ends a scan: no stuffed byte, restart or padding
SOI, EOI = b"\xff\xd8", b"\xff\xd9"
PNG = b"\x89PNG\r\n\x1a\n"
PNG_KEEPS = {
    b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"cHRM", b"gAMA", b"iCCP", b"sBIT", b"sRGB", b"cICP", b"mDCV", b"mDCv",
    b"cLLI", b"cLLi", b"bKGD", b"pHYs", b"acTL", b"fcTL", b"fdAT",
}  # fmt: skip
WEBP_KEEPS = {b"VP8 ", b"VP8L", b"VP8X", b"ALPH", b"ANIM", b"ANMF", b"ICCP"}
FRAME = 16  # bytes of a WebP frame before its own chunks
JFIF = b"JFIF\0"
WEBP_FLAGS = 0x08 | 0x04  # "has EXIF", "has XMP"
ORIENTATION = 0x0112  # EXIF's tag
GIF_KEEPS = (b"NETSCAPE2.0", b"ANIMEXTS1.0", b"ICCRGBG1012")


def rewrite_container(data: bytes) -> bytes:
    """The same image without personal metadata: JPEG, PNG, WebP, GIF, BMP and TIFF (these two encoded again,
    lossless).

    Raises ValueError for other formats and for broken containers.
    """
    if data.startswith(SOI):
        return _jpeg(data)
    if data.startswith(PNG):
        return _png(data)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _webp(data)
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return _gif(data)
    if data[:2] == b"BM":
        return _saved_again(data, "BMP", {})
    if data[:4] in (b"II*\0", b"MM\0*"):
        return _saved_again(data, "TIFF", {"compression": "tiff_deflate"})
    raise ValueError("not a JPEG, PNG, WebP, GIF, BMP or TIFF")


def strip_metadata(data: bytes) -> tuple[bytes, str]:
    """(the image without personal metadata, what was done).

    The pixels of the rewritten file are compared with the original. A damaged file that Pillow decodes, but whose
    container cannot be rewritten, is encoded again in its own format, upright.
    """
    try:
        stripped = rewrite_container(data)
        if stripped == data:
            return data, changes.NONE
        if _pixels(stripped) == _pixels(data):
            return stripped, changes.joined(changes.REMOVED, *_saving(data))
    except (ValueError, OSError):
        pass
    buffer = io.BytesIO()
    with open_bytes(data) as image:
        format_ = "JPEG" if image.format == "MPO" else image.format
        picture = prepared(image)
        profile = None if image.mode == "CMYK" else image.info.get("icc_profile")
        _bare(picture.image).save(
            buffer, format_, icc_profile=profile, **({"quality": 95} if format_ == "JPEG" else {})
        )
    return buffer.getvalue(), changes.joined(changes.REMOVED, changes.COMPRESSED, *picture.steps)


def _saving(data: bytes) -> list[str]:
    """What was done to a file besides removing its metadata: BMP and TIFF are saved again, upright; of a TIFF, and of a
    JPEG file that has several pictures, the first stays."""
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        steps = {
            changes.LOSSLESS: image.format in ("BMP", "TIFF"),
            FIRST: image.format in ("MPO", "TIFF") and bool(getattr(image, "is_animated", False)),
            TURNED: image.format == "TIFF" and image.getexif().get(ORIENTATION, 1) not in (0, 1),
        }
    return [step for step, was_done in steps.items() if was_done]


def _bare(image: Any) -> Any:
    """The pixels of an image with their palette, without anything else."""
    from PIL import Image

    bare = Image.frombytes(image.mode, image.size, image.tobytes())
    if image.mode == "P":
        bare.putpalette(image.getpalette() or [])
    return bare


def _pixels(data: bytes) -> tuple[str, tuple[int, int], bytes]:
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        return image.mode, image.size, image.tobytes()


def _jpeg(data: bytes) -> bytes:
    out, orientation = [SOI], 1
    for marker, content, scan in _segments(data):
        if marker == 0xE1 and content.startswith(b"Exif\0\0"):
            orientation = _orientation(content[6:]) or orientation
        if marker == 0xE0 and content.startswith(JFIF) and len(content) >= 14:
            content = content[:12] + b"\0\0"  # without its thumbnail
        application = 0xE0 <= marker <= 0xEF or marker == 0xFE
        if not application or _affects_looks(marker, content):
            out.append(struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content + scan)
    if orientation != 1:
        content = b"Exif\0\0" + _orientation_exif(orientation)
        out.insert(1, struct.pack(">BBH", 0xFF, 0xE1, len(content) + 2) + content)
    return b"".join([*out, EOI])


def _affects_looks(marker: int, content: bytes) -> bool:
    beginnings = {0xE0: JFIF, 0xE2: b"ICC_PROFILE\0", 0xEE: b"Adobe"}
    return marker in beginnings and content.startswith(beginnings[marker])


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
            at = _end_of_scan(data, at)
        yield marker, content, data[start:at]


def _end_of_scan(data: bytes, at: int) -> int:
    marker = MARKER.search(data, at)
    if marker is None:
        raise ValueError("a JPEG scan does not end")
    return marker.start()


def _orientation(tiff: bytes) -> int | None:
    """The orientation (1 to 8) in an EXIF block, or None."""
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    try:
        if order is None:
            return None
        (start,) = struct.unpack_from(order + "I", tiff, 4)
        (entries,) = struct.unpack_from(order + "H", tiff, start)
        for i in range(entries):
            tag, kind, count, value = struct.unpack_from(order + "HHIH", tiff, start + 2 + 12 * i)
            if tag == 0x0112 and kind == 3 and count == 1:
                return value if 1 <= value <= 8 else None
    except struct.error:
        return None
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


def _webp(data: bytes) -> bytes:
    (whole,) = struct.unpack_from("<I", data, 4)
    out, orientation = [], 1
    for kind, chunk in _webp_chunks(data, 12, min(len(data), 8 + whole)):
        if kind == b"EXIF":
            orientation = _orientation(chunk[8:].removeprefix(b"Exif\0\0")) or 1
        if kind == b"ANMF":
            inside = b"".join(c for k, c in _webp_chunks(chunk, 8 + FRAME, len(chunk)) if k in WEBP_KEEPS)
            chunk = kind + struct.pack("<I", FRAME + len(inside)) + chunk[8 : 8 + FRAME] + inside
        if kind in WEBP_KEEPS:
            out.append(chunk)
    flags = 0x08 if orientation != 1 else 0
    out = [c[:8] + bytes([c[8] & ~WEBP_FLAGS | flags]) + c[9:] if c[:4] == b"VP8X" and len(c) > 8 else c for c in out]
    if orientation != 1:
        block = _orientation_exif(orientation)
        out.append(b"EXIF" + struct.pack("<I", len(block)) + block)
    body = b"WEBP" + b"".join(out)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _webp_chunks(data: bytes, at: int, limit: int) -> Iterator[tuple[bytes, bytes]]:
    """(kind, the whole chunk with its padding) of the chunks from `at` to `limit`."""
    while at + 8 <= limit:
        kind, size = struct.unpack_from("<4sI", data, at)
        if at + 8 + size > len(data):
            raise ValueError("a WebP chunk is cut off")
        end = at + 8 + size + size % 2
        yield kind, data[at:end]
        at = end


def _gif(data: bytes) -> bytes:
    if len(data) < 13:
        raise ValueError("a GIF is cut off")
    at = 13 + (3 << ((data[10] & 7) + 1) if data[10] & 0x80 else 0)
    out = [data[:at]]
    while at < len(data):
        start, kind = at, data[at]
        if kind == 0x3B:
            return b"".join([*out, b"\x3b"])
        if kind == 0x21 and at + 2 < len(data):
            label = data[at + 1]
            at = _gif_blocks(data, at + 2)
            application = data[start + 3 : start + 14]
            if label != 0xFE and (label != 0xFF or application in GIF_KEEPS):
                out.append(data[start:at])
        elif kind == 0x2C and at + 10 < len(data):
            flags = data[at + 9]
            at = _gif_blocks(data, at + 11 + (3 << ((flags & 7) + 1) if flags & 0x80 else 0))
            out.append(data[start:at])
        else:
            raise ValueError("a GIF block is of an unknown kind")
    raise ValueError("a GIF without end block")


def _gif_blocks(data: bytes, at: int) -> int:
    while at < len(data) and data[at]:
        at += 1 + data[at]
    if at >= len(data):
        raise ValueError("a GIF block is cut off")
    return at + 1


def _saved_again(data: bytes, kind: str, options: dict[str, str]) -> bytes:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as image:
            image.load()  # Pillow applies a TIFF's orientation, which is not saved below
            profile, bare = image.info.get("icc_profile"), _bare(image)
    except Exception as error:  # Pillow's decoders raise many kinds of exceptions
        raise ValueError(f"a {kind} cannot be read ({error})") from None
    buffer = io.BytesIO()
    bare.save(buffer, kind, icc_profile=profile, **options)
    return buffer.getvalue()
