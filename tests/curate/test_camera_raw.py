"""Files of cameras and phones: the JPEG preview of a RAW file, or HEIC and AVIF as JPEG, is stored with its date."""

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from support.helpers import saved

from driftline.curate.core.seeding import rng_for
from driftline.curate.foreign import images
from driftline.curate.foreign.images import HEIC_NEEDS
from driftline.curate.images import camera_raw
from driftline.curate.images.checks import ImageLimits, check_image
from driftline.curate.sources.folder import Folder

TAKEN, SECONDS = "2019:03:04 10:00:00", 1551693600


def jpeg(width: int, height: int, exif: bytes = b"") -> bytes:
    rows = np.arange(width, dtype=np.uint8)[None, :, None] * np.ones((height, 1, 3), np.uint8)
    return saved(Image.fromarray(rows), "JPEG", exif=exif)


def tags(photometric: int = 32803) -> bytes:
    """The tags of a file like TIFF: a sensor's picture, turned by 90 degrees."""
    exif = Image.Exif()
    exif.endian = "<"
    exif[262], exif[0x0112], exif[0x0110] = photometric, 6, "Camera"
    exif.get_ifd(0x8769)[0x9003] = TAKEN
    return exif.tobytes()[6:]


def lossless() -> bytes:
    """Sensor data as Canon and Adobe store it: a JPEG of another kind."""
    small = jpeg(300, 200)
    return small.replace(b"\xff\xc0", b"\xff\xc3", 1)


FORMATS = {
    "dng": tags() + jpeg(16, 12) + lossless() + jpeg(64, 48) + b"sensor",
    "orf": b"IIRO" + tags()[4:] + jpeg(64, 48),
    "rw2": b"IIU\0" + tags()[4:] + jpeg(64, 48),
    "raf": b"FUJIFILMCCD-RAW 0201" + bytes(64) + jpeg(64, 48, b"Exif\0\0" + tags(2)) + b"sensor" * 9,
    "cr3": b"\0\0\0\x18ftypcrx " + bytes(64) + jpeg(16, 12) + lossless() + jpeg(64, 48) + b"sensor",
}


@pytest.mark.parametrize("kind", FORMATS)
def test_its_largest_preview_is_stored_with_date_and_orientation(kind: str) -> None:
    data = FORMATS[kind]
    check = check_image(data, ImageLimits())
    upright = (64, 48) if kind == "cr3" else (48, 64)  # the tags of cr3 are in boxes that are not read
    assert (check.reason, check.extension, check.width, check.height) == (None, "jpg", *upright)
    assert check.converted is not None
    assert check.converted.endswith(b"\xff\xd9")
    assert len(check.converted) < len(data)
    with Image.open(io.BytesIO(check.converted)) as stored:
        stored.load()
        exif = stored.getexif()
    if kind != "cr3":
        assert exif[0x0112] == 6
        assert exif.get_ifd(0x8769)[0x9003] == TAKEN


@pytest.mark.parametrize("kind", [*FORMATS, "heic", "avif"])
def test_a_folder_reads_its_date(kind: str, tmp_path: Path) -> None:
    data = FORMATS[kind] if kind in FORMATS else encoded("HEIF" if kind == "heic" else "AVIF")
    (tmp_path / f"a.{kind}").write_bytes(data)
    (row,) = pa.Table.from_batches(Folder(source="folder", path=str(tmp_path)).batches()).to_pylist()
    assert (row["fault"], row["taken"]) == (None, None if kind == "cr3" else SECONDS)


def test_one_beside_a_photo_of_its_name_is_left_out(tmp_path: Path) -> None:
    for name in ("a.NEF", "b.NEF"):
        (tmp_path / name).write_bytes(FORMATS["dng"])
    (tmp_path / "a.jpg").write_bytes(jpeg(8, 8))
    table = pa.Table.from_batches(Folder(source="folder", path=str(tmp_path)).batches())
    assert [Path(path).name for path in table["path"].to_pylist()] == ["a.jpg", "b.NEF"]


def test_one_with_a_damaged_head_is_a_photo_still(tmp_path: Path) -> None:
    (tmp_path / "a.NEF").write_bytes(bytes(64))
    (tmp_path / "b.jpg").write_bytes(jpeg(8, 8))
    table = pa.Table.from_batches(Folder(source="folder", path=str(tmp_path)).batches())
    assert [Path(path).name for path in table["path"].to_pylist()] == ["a.NEF", "b.jpg"]


def test_without_a_preview_the_message_says_what_to_do() -> None:
    check = check_image(tags() + lossless() + b"sensor", ImageLimits())
    assert (check.reason, check.detail) == ("unsupported_format", camera_raw.NO_PREVIEW)


def test_limits_hold() -> None:
    assert check_image(encoded("HEIF"), ImageLimits(max_pixels=1000)).reason == "too_many_pixels"
    assert check_image(encoded("HEIF")[:200], ImageLimits()).reason in ("not_an_image", "broken_image")
    assert check_image(FORMATS["dng"], ImageLimits(max_pixels=100)).reason == "too_many_pixels"
    assert check_image(FORMATS["dng"], ImageLimits(min_edge=60)).reason == "too_small"


def test_a_plain_tiff_stays_what_it_is() -> None:
    check = check_image(saved(Image.new("RGB", (8, 8)), "TIFF"), ImageLimits())
    assert (check.reason, check.extension, check.converted) == (None, "tif", None)


@pytest.mark.parametrize("kind", FORMATS)
def test_damaged_bytes_are_an_answer(kind: str) -> None:
    rng, data = np.random.default_rng(0), np.frombuffer(FORMATS[kind], np.uint8)
    for _ in range(60):
        bad = data[: rng.integers(12, len(data))].copy()
        bad[rng.integers(0, len(bad), 8)] = rng.integers(0, 256, 8)
        check = check_image(bad.tobytes(), ImageLimits())
        assert check.reason is not None or check.width


# ---- photos as phones write them: HEIC with its extra, AVIF; the message names the extra


def encoded(kind: str) -> bytes:
    """A smooth picture of 64 × 48 pixels with a date."""
    coarse = rng_for(0, "phone").integers(0, 256, (3, 4, 3)).astype(np.uint8)
    exif = Image.Exif()
    exif.get_ifd(0x8769)[0x9003] = TAKEN
    image = Image.fromarray(coarse).resize((64, 48), Image.Resampling.BICUBIC)
    return saved(image, kind, exif=exif.tobytes(), quality=95)


@pytest.mark.parametrize("kind", ["HEIF", "AVIF"])
def test_it_is_stored_as_jpeg_with_its_date(kind: str) -> None:
    data = encoded(kind)
    check = check_image(data, ImageLimits())
    assert (check.reason, check.extension, check.width, check.height) == (None, "jpg", 64, 48)
    assert check.converted is not None
    with Image.open(io.BytesIO(check.converted)) as stored, Image.open(io.BytesIO(data)) as original:
        assert stored.format == "JPEG"
        assert stored.getexif().get_ifd(0x8769)[0x9003] == TAKEN
        difference = np.abs(np.asarray(stored, np.int16) - np.asarray(original.convert("RGB"), np.int16))
    assert difference.mean() < 4


def test_without_the_extra_the_message_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.heic").write_bytes(encoded("HEIF"))
    monkeypatch.setattr(images, "reads_heic", lambda: False)
    (row,) = pa.Table.from_batches(Folder(source="folder", path=str(tmp_path)).batches()).to_pylist()
    assert row["fault"] == "needs_heic_extra"
    assert row["raw"] == f"a.heic: {HEIC_NEEDS}"
    check = check_image(encoded("HEIF"), ImageLimits())
    assert (check.reason, check.detail) == ("needs_heic_extra", HEIC_NEEDS)
