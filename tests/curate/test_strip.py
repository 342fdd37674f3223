"""Removal of metadata: pixels stay, personal data goes, and a broken file is an error."""

import io
import struct
import zipfile
import zlib
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageCms, PngImagePlugin
from support.helpers import saved

from driftline.curate.foreign.images import prepared
from driftline.curate.images.changes import alters
from driftline.curate.images.strip_exif import rewrite_container, strip_metadata

SECRET = b"Erika Mustermann"
PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8))


@cache  # cached, because a colour profile holds the second of its creation
def with_metadata(kind: str, orientation: int = 1) -> bytes:
    """A picture whose metadata names a person and a place."""
    exif = Image.Exif()
    exif[0x013B] = SECRET.decode()
    exif[0x0112] = orientation
    exif.get_ifd(0x8825)[2] = (52.0, 31.0, 12.0)
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    buffer = io.BytesIO()
    if kind == "PNG":
        info = PngImagePlugin.PngInfo()
        info.add_text("Author", SECRET.decode())
        info.add_itxt("XML:com.adobe.xmp", SECRET.decode())
        PICTURE.save(buffer, "PNG", exif=exif, pnginfo=info, icc_profile=profile)
    elif kind == "GIF":
        other = PICTURE.transpose(Image.Transpose.ROTATE_180)
        PICTURE.quantize().save(buffer, "GIF", comment=SECRET, save_all=True, append_images=[other.quantize()])
    elif kind == "TIFF":
        PICTURE.save(buffer, "TIFF", exif=exif, icc_profile=profile)
    elif kind == "BMP":
        PICTURE.save(buffer, "BMP")
    elif kind == "WEBP":
        PICTURE.save(buffer, "WEBP", lossless=True, exif=exif, xmp=SECRET, icc_profile=profile)
    else:
        PICTURE.save(
            buffer,
            "JPEG",
            exif=exif,
            xmp=SECRET,
            comment=SECRET,
            icc_profile=profile,
            progressive=kind == "progressive",
        )
    return buffer.getvalue()


def frames(data: bytes) -> list[np.ndarray]:
    with Image.open(io.BytesIO(data)) as image:
        found = []
        for i in range(getattr(image, "n_frames", 1)):
            image.seek(i)
            found.append(np.asarray(image.convert("RGB")))
        return found


KINDS = ["JPEG", "progressive", "PNG"]  # whose container is written again
OTHERS = ["WEBP", "GIF", "TIFF", "BMP"]


def hidden() -> dict[str, bytes]:
    """Pictures that hold a name where no reader looks."""
    plain = {kind: saved(PICTURE, kind) for kind in ("JPEG", "PNG")}
    chunk, private = (
        struct.pack(">I", len(SECRET)) + kind + SECRET + struct.pack(">I", zlib.crc32(kind + SECRET))
        for kind in (b"caBX", b"prVt")
    )
    jfxx = b"\xff\xe0" + struct.pack(">H", 7 + len(SECRET)) + b"JFXX\0" + SECRET
    thumbnail = b"\xff\xe0" + struct.pack(">H", 16 + 3 * 16) + b"JFIF\0\1\1\0\0\1\0\1\4\4" + SECRET * 3
    return {
        "PNG C2PA": plain["PNG"][:33] + chunk + plain["PNG"][33:],
        "PNG private": plain["PNG"][:33] + private + plain["PNG"][33:],
        "JFXX": plain["JPEG"][:2] + jfxx + plain["JPEG"][2:],
        "JFIF thumbnail": plain["JPEG"][:2] + thumbnail + plain["JPEG"][20:],
    }


@pytest.mark.parametrize("place", ["PNG C2PA", "PNG private", "JFXX", "JFIF thumbnail"])
def test_nothing_stays_where_no_reader_looks(place: str) -> None:
    before = hidden()[place]
    after = rewrite_container(before)
    assert SECRET in before
    assert SECRET not in after
    assert (frames(before)[0] == frames(after)[0]).all()
    assert rewrite_container(after) == after


@pytest.mark.parametrize("kind", OTHERS)
def test_other_formats_become_png_upright_without_personal_data(kind: str) -> None:
    before = with_metadata(kind, 6) + SECRET
    after, done = strip_metadata(before)
    assert SECRET not in after
    assert (alters(done), "stored as PNG" in done) == (False, True)
    with Image.open(io.BytesIO(after)) as image, Image.open(io.BytesIO(before)) as old:
        assert (image.format, set(image.getexif())) == ("PNG", set())
        assert image.info.get("icc_profile") == old.info.get("icc_profile")
        assert (np.asarray(image.convert("RGB")) == np.asarray(prepared(old).image)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_pixels_and_profile_stay_and_personal_data_goes(kind: str) -> None:
    before = with_metadata(kind)
    after = rewrite_container(before)
    assert SECRET in before
    assert SECRET not in after
    assert all((a == b).all() for a, b in zip(frames(before), frames(after), strict=True))
    with Image.open(io.BytesIO(after)) as image, Image.open(io.BytesIO(before)) as old:
        assert image.format == old.format
        assert not image.getexif().get_ifd(0x8825)
        assert image.info.get("icc_profile") == old.info.get("icc_profile")


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("orientation", [3, 6, 8])
def test_orientation_stays(kind: str, orientation: int) -> None:
    with Image.open(io.BytesIO(rewrite_container(with_metadata(kind, orientation)))) as image:
        assert image.getexif()[0x0112] == orientation


def test_data_after_the_end_of_the_image_is_removed() -> None:
    assert SECRET not in rewrite_container(with_metadata("JPEG") + b"\xff\xd8" + SECRET)


@pytest.mark.parametrize("kind", KINDS)
def test_stripping_twice_changes_nothing(kind: str) -> None:
    once = rewrite_container(with_metadata(kind, 6))
    assert rewrite_container(once) == once


@given(st.sampled_from(KINDS), st.data())
def test_a_damaged_file_is_an_error_or_loses_only_metadata(kind: str, data: st.DataObject) -> None:
    whole = bytearray(with_metadata(kind))
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    with suppress(ValueError):
        assert len(rewrite_container(cut)) <= len(cut) + 64


@given(st.binary(max_size=300))
def test_any_bytes_are_an_error_or_an_image_file(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a JPEG or PNG"):
        rewrite_container(b"x" + data)


@pytest.mark.shared(twin="tests/curate/test_strip.py::test_pixels_and_profile_stay_and_personal_data_goes")
def test_files_of_real_cameras_lose_their_gps_and_keep_their_pixels(shared: Path) -> None:
    found = 0
    with zipfile.ZipFile(shared / "exif" / "exif_samples.zip") as archive:
        for name in archive.namelist():
            if name.lower().endswith((".jpg", ".jpeg")):
                before = archive.read(name)
                after, done = strip_metadata(before)
                assert alters(done) == name.endswith("corrupted.jpg")
                if alters(done):
                    continue
                assert (frames(before)[0] == frames(after)[0]).all(), name
                with Image.open(io.BytesIO(after)) as image:
                    assert set(image.getexif()) <= {0x0112}, name
                with Image.open(io.BytesIO(before)) as image:
                    found += bool(image.getexif().get_ifd(0x8825))
    assert found >= 10
