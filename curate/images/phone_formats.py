"""HEIC and AVIF, as phones write them: converted to JPEG when they are fetched, because few tools and browsers read
them. HEIC needs the extra `heic` (pillow-heif); Pillow reads AVIF itself."""

from __future__ import annotations

import io
from functools import cache
from typing import Any

from driftline.curate.core.outside.images import as_rgb
from driftline.curate.images import changes

NAMES = {"HEIF": "HEIC", "AVIF": "AVIF"}  # Pillow's name of each format → what people say
HEIC_SUFFIXES = {".heic", ".heif"}
HEIC_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"}
HEIC_NEEDS = "HEIC needs the extra heic: pip install 'driftline[heic]'"
QUALITY = 95  # of the JPEG


@cache
def reads_heic() -> bool:
    """Whether HEIC can be read; teaches Pillow to do so in this process."""
    try:
        import pillow_heif
    except ImportError:
        return False
    pillow_heif.register_heif_opener()
    return True


def is_heic(data: bytes) -> bool:
    """Whether bytes begin as a HEIC file does."""
    return data[4:8] == b"ftyp" and data[8:12] in HEIC_BRANDS


def as_jpeg(image: Any) -> tuple[bytes, str]:
    """An opened image as JPEG, upright or with its orientation, with EXIF and colour profile; and what was done."""
    buffer = io.BytesIO()
    more = {"icc_profile": profile} if (profile := image.info.get("icc_profile")) else {}
    as_rgb(image).save(buffer, "JPEG", quality=QUALITY, exif=image.getexif(), **more)
    steps = {
        changes.REENCODED.format(NAMES[image.format]): True,
        changes.FIRST: getattr(image, "n_frames", 1) > 1,
        changes.OPAQUE: image.has_transparency_data,
        changes.TURNED: image.info.get("original_orientation") not in (None, 1),  # pillow-heif turns
    }
    return buffer.getvalue(), changes.joined(*(step for step, was_done in steps.items() if was_done))
