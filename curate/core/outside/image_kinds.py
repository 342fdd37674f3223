"""What an image file is, by its first bytes: never by its name, nor by what was opened before it."""

from functools import cache

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
