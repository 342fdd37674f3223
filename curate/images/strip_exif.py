"""Taking personal metadata (EXIF with GPS, XMP, IPTC, comments) out of image files without touching a pixel.

Containers are taken apart and put together again; compressed image data is copied as it is. What decides how the
picture looks stays: colour profiles, Adobe's marker, animation, and a turned camera's orientation.
"""

from __future__ import annotations

import io
import re
import struct
import zlib
from collections.abc import Iterator

MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")  # within a scan: no stuffed byte, restart or padding
SOI, EOI = b"\xff\xd8", b"\xff\xd9"
PNG = b"\x89PNG\r\n\x1a\n"
PNG_DROPS = {b"eXIf", b"tEXt", b"zTXt", b"iTXt", b"tIME"}
WEBP_DROPS = {b"EXIF", b"XMP "}
WEBP_FLAGS = 0x08 | 0x04  # "has EXIF", "has XMP"
GIF_KEEPS = (b"NETSCAPE2.0", b"ANIMEXTS1.0", b"ICCRGBG1012")


def strip(data: bytes) -> bytes:
    """The same picture without personal metadata; formats: JPEG, PNG, WebP, GIF, BMP (has none), TIFF (written anew).

    Raises ValueError for bytes that are none of these or whose container is broken.
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
        return data
    if data[:4] in (b"II*\0", b"MM\0*"):
        return _tiff(data)
    raise ValueError("no JPEG, PNG, WebP, GIF, BMP or TIFF")


def cleaned(data: bytes) -> tuple[bytes, bool]:
    """(the picture without personal metadata, was it compressed again?).

    What `strip` gives is decoded and compared with the original. A damaged file that a decoder reads and `strip` cannot
    take apart is written anew from its pixels, in its own format, by Pillow.
    """
    try:
        found = strip(data)
        if found == data:
            return data, False  # the very bytes: there was nothing to take out
        if _pixels(found) == _pixels(data):
            return found, False
    except (ValueError, OSError):
        pass
    from PIL import Image

    buffer = io.BytesIO()
    with Image.open(io.BytesIO(data)) as image:
        kind = "JPEG" if image.format == "MPO" else image.format
        bare = Image.frombytes(image.mode, image.size, image.tobytes())
        bare.save(buffer, kind, **({"quality": 95} if kind == "JPEG" else {}))
    return buffer.getvalue(), True


def _pixels(data: bytes) -> tuple[str, tuple[int, int], bytes]:
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        return image.mode, image.size, image.tobytes()


def _jpeg(data: bytes) -> bytes:
    out, turned = [SOI], 1
    for marker, content, scan in _segments(data):
        if marker == 0xE1 and content.startswith(b"Exif\0\0"):
            turned = _orientation(content[6:]) or turned
        personal = marker in (0xE1, 0xED, 0xFE) or (0xE2 <= marker <= 0xEF and not _of_colour(marker, content))
        if not personal:
            out.append(struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content + scan)
    if turned != 1:
        content = b"Exif\0\0" + _least_exif(turned)
        out.insert(1, struct.pack(">BBH", 0xFF, 0xE1, len(content) + 2) + content)
    return b"".join([*out, EOI])


def _of_colour(marker: int, content: bytes) -> bool:
    profile = marker == 0xE2 and content.startswith(b"ICC_PROFILE\0")
    return profile or (marker == 0xEE and content.startswith(b"Adobe"))


def _segments(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield (marker, content, the scan that follows a start of scan) up to the end of the image; what a camera
    appended after it (previews with GPS of their own) is not looked at."""
    at = 2
    while True:
        at = data.find(b"\xff", at)  # real cameras leave zeros between segments; decoders look for the next, too
        if at < 0 or at + 1 >= len(data):
            raise ValueError("a JPEG has no end")
        marker = data[at + 1]
        if marker in (0x00, 0x01, 0xFF) or 0xD0 <= marker <= 0xD8:  # no marker, or one without content
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
        begin = at
        if marker == 0xDA:
            at = _end_of_scan(data, at)
        yield marker, content, data[begin:at]


def _end_of_scan(data: bytes, at: int) -> int:
    found = MARKER.search(data, at)
    if found is None:
        raise ValueError("a JPEG scan does not end")
    return found.start()


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


def _least_exif(turned: int) -> bytes:
    """The least EXIF block that says how the camera was turned: one entry, big-endian."""
    return struct.pack(">4sI H HHIHH I", b"MM\0*", 8, 1, 0x0112, 3, 1, turned, 0, 0)


def _png(data: bytes) -> bytes:
    out, at = [PNG], len(PNG)
    while at < len(data):
        if at + 12 > len(data):
            raise ValueError("a PNG chunk is cut off")
        size, kind = struct.unpack_from(">I4s", data, at)
        end = at + 12 + size
        if end > len(data):
            raise ValueError("a PNG chunk is cut off")
        turned = _orientation(data[at + 8 : end - 4]) if kind == b"eXIf" else None
        if turned not in (None, 1):
            chunk = b"eXIf" + _least_exif(turned or 1)
            out.append(struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)))
        if kind not in PNG_DROPS:
            out.append(data[at:end])
        if kind == b"IEND":
            return b"".join(out)
        at = end
    raise ValueError("a PNG has no end")


def _webp(data: bytes) -> bytes:
    out, at, turned = [], 12, 1
    (whole,) = struct.unpack_from("<I", data, 4)
    limit = min(len(data), 8 + whole)
    while at + 8 <= limit:
        kind, size = struct.unpack_from("<4sI", data, at)
        end = at + 8 + size + size % 2
        if at + 8 + size > len(data):
            raise ValueError("a WebP chunk is cut off")
        chunk = data[at:end]
        if kind == b"EXIF":
            turned = _orientation(chunk[8:].removeprefix(b"Exif\0\0")) or 1
        if kind not in WEBP_DROPS:
            out.append(chunk)
        at = end
    flags = 0x08 if turned != 1 else 0
    out = [c[:8] + bytes([c[8] & ~WEBP_FLAGS | flags]) + c[9:] if c[:4] == b"VP8X" and len(c) > 8 else c for c in out]
    if turned != 1:
        block = _least_exif(turned)
        out.append(b"EXIF" + struct.pack("<I", len(block)) + block)
    body = b"WEBP" + b"".join(out)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _gif(data: bytes) -> bytes:
    if len(data) < 13:
        raise ValueError("a GIF is cut off")
    at = 13 + (3 << ((data[10] & 7) + 1) if data[10] & 0x80 else 0)
    out = [data[:at]]
    while at < len(data):
        begin, kind = at, data[at]
        if kind == 0x3B:
            return b"".join([*out, b"\x3b"])
        if kind == 0x21 and at + 2 < len(data):
            label = data[at + 1]
            at = _gif_blocks(data, at + 2)
            named = data[begin + 3 : begin + 14]
            if label != 0xFE and (label != 0xFF or named in GIF_KEEPS):
                out.append(data[begin:at])
        elif kind == 0x2C and at + 10 < len(data):
            flags = data[at + 9]
            at = _gif_blocks(data, at + 11 + (3 << ((flags & 7) + 1) if flags & 0x80 else 0))
            out.append(data[begin:at])
        else:
            raise ValueError("a GIF block is of no known kind")
    raise ValueError("a GIF has no end")


def _gif_blocks(data: bytes, at: int) -> int:
    while at < len(data) and data[at]:
        at += 1 + data[at]
    if at >= len(data):
        raise ValueError("a GIF block is cut off")
    return at + 1


def _tiff(data: bytes) -> bytes:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as image:
            image.load()  # turns it upright by its orientation, which is gone afterwards
            profile = image.info.get("icc_profile")
            bare = Image.frombytes(image.mode, image.size, image.tobytes())
            if image.mode == "P":
                bare.putpalette(image.getpalette() or [])
    except Exception as error:  # Pillow's decoders raise what they like
        raise ValueError(f"a TIFF cannot be read ({error})") from None
    buffer = io.BytesIO()
    bare.save(buffer, "TIFF", compression="tiff_deflate", icc_profile=profile)
    return buffer.getvalue()
