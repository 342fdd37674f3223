"""RAW files of cameras: stored is the JPEG preview that the camera put into the file; nothing is developed."""

import io
import re
import warnings
from itertools import islice
from typing import Any

from driftline.curate.core.late import Image

SUFFIXES = {".arw", ".cr2", ".cr3", ".dng", ".nef", ".orf", ".pef", ".raf", ".rw2", ".srw"}
NO_PREVIEW = "a RAW file without a JPEG preview: convert it to JPEG"
TIFF = (b"II*\0", b"MM\0*")
LIKE_TIFF = (b"IIRO", b"IIRS", b"MMOR", b"IIU\0")  # Olympus, Panasonic: TIFF but for these four bytes
OTHERS = (b"FUJIFILMCCD-RAW", b"\0\0\0\x18ftypcrx ")  # Fujifilm, Canon CR3
PHOTOMETRIC, SUB_IFDS, ORIENTATION, MODEL, EXIF_IFD = 0x0106, 0x014A, 0x0112, 0x0110, 0x8769
OF_SENSOR = (32803, 34892)  # photometric interpretations: colour filter array, linear RAW
DATES = (0x9003, 0x9004, 0x9011)
MOST_IFDS, MOST_PREVIEWS, MOST_MARKS = 32, 8, 1000
HEAD = 1 << 22  # bytes of a file in which its first tags are


def is_raw(data: bytes) -> bool:
    """Whether bytes are a RAW file: by how they begin or, for TIFF, by a picture that is a sensor's."""
    if data.startswith((*LIKE_TIFF, *OTHERS)) or (data.startswith(TIFF) and data[8:10] == b"CR"):
        return True
    if not data.startswith(TIFF):
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return any(ifd.get(PHOTOMETRIC) in OF_SENSOR for ifd in _ifds(data))
    except Exception:  # Pillow raises many kinds for damaged tags
        return False


def _ifds(data: bytes) -> list[Any]:
    """The directories of tags of a TIFF file."""
    from PIL.TiffImagePlugin import ImageFileDirectory_v2

    file, directories = io.BytesIO(data), list[Any]()
    first = ImageFileDirectory_v2(data[:8])
    left = [first.next]
    while left and len(directories) < MOST_IFDS:
        ifd = ImageFileDirectory_v2(data[:8])
        file.seek(left.pop())
        ifd.load(file)
        directories.append(ifd)
        inside = ifd.get(SUB_IFDS, ())
        left += [at for at in (ifd.next, *(inside if isinstance(inside, tuple) else (inside,))) if at]
    return directories


def previews(data: bytes) -> list[bytes]:
    """The JPEG files inside, the largest picture first, with date and orientation of the RAW file if they have none."""
    marks = islice(re.finditer(rb"(?=\xff\xd8\xff)", data), MOST_MARKS)
    jpegs = [part for mark in marks if (part := _jpeg(data, mark.start())) is not None]
    chosen = sorted(jpegs, key=lambda part: -part[0])[:MOST_PREVIEWS]
    return [_described(data[start:end], data) for _, start, end in chosen]


def _jpeg(data: bytes, start: int) -> tuple[int, int, int] | None:
    """Pixels, start and end of the JPEG file that begins here; None for other bytes and lossless sensor data."""
    at, pixels = start + 2, 0
    while at + 9 < len(data) and data[at] == 0xFF:
        marker, size = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if marker in (0xC0, 0xC1, 0xC2):
            if data[at + 4] != 8:  # bits a colour
                return None
            height, width = (int.from_bytes(data[at + k : at + k + 2], "big") for k in (5, 7))
            pixels = height * width
        elif marker == 0xDA:  # of compressed data FF is always followed by 00: the first FFD9 is the end
            end = data.find(b"\xff\xd9", at)
            return None if end < 0 or not pixels else (pixels, start, end + 2)
        elif not (0xC4 <= marker <= 0xFE) or size < 2:
            return None
        at += 2 + size
    return None


def _described(jpeg: bytes, raw: bytes) -> bytes:
    """The JPEG with tags of the RAW file, if it has none of its own."""
    copied = Image.Exif()
    try:
        with warnings.catch_warnings(), Image.open(io.BytesIO(jpeg)) as image:
            warnings.simplefilter("ignore")
            own, tags = image.getexif(), details(io.BytesIO(raw))
            if own or tags is None:
                return jpeg
            dates = tags.get_ifd(EXIF_IFD)
            copied.update({tag: tags[tag] for tag in (ORIENTATION, MODEL) if tag in tags})
            copied.get_ifd(EXIF_IFD).update({tag: dates[tag] for tag in DATES if tag in dates})
            segment = copied.tobytes()
    except Exception:  # Pillow raises many kinds for damaged tags
        return jpeg
    size = (len(segment) + 2).to_bytes(4, "big")
    return jpeg if size[:2] != bytes(2) else jpeg[:2] + b"\xff\xe1" + size[2:] + segment + jpeg[2:]


def details(file: Any) -> Any:
    """EXIF of an opened RAW file: its own tags or, if it is not like TIFF, those of its preview; None: neither."""
    head = file.read(HEAD)
    if head.startswith((*TIFF, *LIKE_TIFF)):
        exif = Image.Exif()
        exif.load((b"II*\0" if head.startswith(b"II") else b"MM\0*") + head[4:])
        return exif
    start = head.find(b"\xff\xd8\xff")
    if start < 0:
        return None
    with Image.open(io.BytesIO(head[start:])) as image:
        return image.getexif()
