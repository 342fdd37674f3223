"""What is done to a photo's bytes: in words, for its record, and so that every reader shows the same picture.

An image's record joins the steps in their order, such as "re-encoded from AVIF as JPEG; metadata removed"; card,
attribution and Croissant read it. A plain file is upright, RGB or grey of 8 bits, without transparency, JPEG or
PNG. HEIC, AVIF, JPEG XL and JPEG 2000 are converted to JPEG when they are fetched, because few tools and browsers read
them. Other files are stored as they came, and get their plain form when they are published or sent to people.
"""

import io
from contextlib import suppress
from typing import Any

from driftline.curate.core.errors import BadInput
from driftline.curate.foreign.images import (
    AS_READ,
    GREY,
    OPAQUE,
    PROFILE,
    TURNED,
    Picture,
    kind_of,
    open_image,
    prepared,
    shown_alike,
)

NONE = "none"  # published are the bytes that were fetched
REENCODED = "re-encoded from {} as JPEG"
PREVIEW = "the JPEG preview inside a RAW file"
REMOVED, COMPRESSED = "metadata removed", "compressed again"
AS_PNG = "stored as PNG"
ALTERING = ("re-encoded", PREVIEW, COMPRESSED, OPAQUE, "scaled to 8 bits", PROFILE)
KINDS = {  # what may be done to a picture, for counts → words of the record
    "orientation": TURNED, "depth": "to 8 bits", "alpha": OPAQUE, "frames": "image", "profile": "CMYK",
}  # fmt: skip


def joined(*steps: str | None) -> str:
    """The record of several steps, each a record itself.

    >>> joined(None, "metadata removed"), joined("none", "")
    ('metadata removed', 'none')
    """
    return "; ".join(step for step in steps if step and step != NONE) or NONE


def alters(changes: str) -> bool:
    """Whether the picture has other pixels than the photo that was fetched.

    >>> alters("re-encoded from AVIF as JPEG"), alters("metadata removed")
    (True, False)
    """
    return any(word in changes for word in ALTERING)


def kinds_of(record: str) -> list[str]:
    """The kinds of preparation in a record.

    >>> kinds_of("turned upright; compressed again; metadata removed"), kinds_of("none")
    (['orientation'], [])
    """
    steps = [step for step in record.split("; ") if step != PREVIEW]
    return [kind for kind, words in KINDS.items() if any(words in step for step in steps)]


NAMES = {"HEIF": "HEIC", "AVIF": "AVIF", "JXL": "JPEG XL", "JPEG2000": "JPEG 2000"}  # Pillow's name → what people say
QUALITY = 95  # of a JPEG whose own tables cannot be used


def plain_bytes(data: bytes) -> tuple[bytes, str]:
    """(the same bytes, or the picture in plain form where Pillow's own RGB is not what people see; what was done).

    Bytes that are no picture stay as they are: who reads them says so.
    """
    with suppress(BadInput), open_image(data, "An image") as image:
        if shown_alike(image):
            return data, NONE
        picture = prepared(image)
        if not set(picture.steps) <= AS_READ.get(image.format or "", set()):
            return as_plain(image, picture)
    return data, NONE


def plain_extension(data: bytes) -> str | None:
    """The extension of bytes that `as_plain` may have written."""
    return {"PNG": "png", "JPEG": "jpg"}.get(kind_of(data) or "")


def as_plain(image: Any, picture: Picture) -> tuple[bytes, str]:
    """An opened image in plain form, with its date and colour profile; and what was done.

    JPEG stays JPEG: with its own tables, turned as the picture is, little is lost. Formats of NAMES become JPEG, others
    PNG, which loses nothing. picture: of `prepared`.
    """
    buffer, steps = io.BytesIO(), list(picture.steps)
    how: dict[str, Any] = {"exif": _without_orientation(image)}
    if image.mode != "CMYK" and (profile := image.info.get("icc_profile")):
        how["icc_profile"] = profile
    several = any("picture" in step for step in steps)
    rgb = picture.image.getchannel(0) if image.mode in (*GREY, "L") and not several else picture.image
    if image.format in NAMES:
        rgb.save(buffer, "JPEG", quality=QUALITY, **how)
        steps.insert(0, REENCODED.format(NAMES[image.format]))
    elif image.format in ("JPEG", "MPO"):
        rgb.save(buffer, "JPEG", **_tables(image, picture), **how)
        steps.append(COMPRESSED)
    else:
        rgb.save(buffer, "PNG", **how)
        steps.append(AS_PNG)
    return buffer.getvalue(), joined(*steps)


def _without_orientation(image: Any) -> bytes:
    try:
        exif = image.getexif()
        exif.pop(0x0112, None)
        written: bytes = exif.tobytes()
    except Exception:  # Pillow raises many kinds for damaged tags
        return b""
    return written


def _tables(image: Any, picture: Picture) -> dict[str, Any]:
    """Quantisation and sampling of a JPEG, for the turned picture."""
    from PIL.JpegImagePlugin import get_sampling

    tables = dict(image.quantization)
    if image.mode == "CMYK" or any(max(table) > 255 for table in tables.values()):
        return {"quality": QUALITY, "subsampling": 0}
    if picture.swapped:
        tables = {i: [table[8 * (k % 8) + k // 8] for k in range(64)] for i, table in tables.items()}
    sampling = get_sampling(image)  # 1: halved in width, which cannot be written halved in height
    same = sampling == 2 or (sampling == 1 and not picture.swapped)
    return {"qtables": tables, "subsampling": sampling if same else 0}
