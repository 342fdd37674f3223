"""Photos as phones write them: HEIC with its extra, AVIF; stored as JPEG; the message names the extra."""

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from driftline.curate.core.seeding import rng_for
from driftline.curate.foreign import images
from driftline.curate.foreign.images import HEIC_NEEDS, reads_heic
from driftline.curate.images.checks import ImageLimits, check_image
from driftline.curate.sources.folder import Folder


def encoded(kind: str, taken: str = "2019:03:04 10:00:00", seed: int = 0) -> bytes:
    """A smooth picture of 64 × 48 pixels with a date."""
    reads_heic()
    coarse = rng_for(seed, "phone").integers(0, 256, (3, 4, 3)).astype(np.uint8)
    exif = Image.Exif()
    exif.get_ifd(0x8769)[0x9003] = taken
    buffer = io.BytesIO()
    image = Image.fromarray(coarse).resize((64, 48), Image.Resampling.BICUBIC)
    image.save(buffer, kind, exif=exif.tobytes(), quality=95)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["HEIF", "AVIF"])
def test_it_is_stored_as_jpeg_with_its_date(kind: str) -> None:
    data = encoded(kind)
    check = check_image(data, ImageLimits())
    assert (check.reason, check.extension, check.width, check.height) == (None, "jpg", 64, 48)
    assert check.converted is not None
    with Image.open(io.BytesIO(check.converted)) as stored, Image.open(io.BytesIO(data)) as original:
        assert stored.format == "JPEG"
        assert stored.getexif().get_ifd(0x8769)[0x9003] == "2019:03:04 10:00:00"
        difference = np.abs(np.asarray(stored, np.int16) - np.asarray(original.convert("RGB"), np.int16))
    assert difference.mean() < 4


def test_limits_hold_for_it() -> None:
    assert check_image(encoded("HEIF"), ImageLimits(max_pixels=1000)).reason == "too_many_pixels"
    assert check_image(encoded("HEIF")[:200], ImageLimits()).reason in ("not_an_image", "broken_image")


@pytest.mark.parametrize("kind", ["HEIC", "AVIF"])
def test_a_folder_reads_its_date(kind: str, tmp_path: Path) -> None:
    (tmp_path / f"a.{kind.lower()}").write_bytes(encoded("HEIF" if kind == "HEIC" else kind))
    (row,) = pa.Table.from_batches(Folder(source="folder", path=str(tmp_path)).batches()).to_pylist()
    assert (row["fault"], row["taken"]) == (None, 1551693600)


def test_without_the_extra_the_message_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.heic").write_bytes(encoded("HEIF"))
    monkeypatch.setattr(images, "reads_heic", lambda: False)
    (row,) = pa.Table.from_batches(Folder(source="folder", path=str(tmp_path)).batches()).to_pylist()
    assert row["fault"] == "needs_heic_extra"
    assert row["raw"] == f"a.heic: {HEIC_NEEDS}"
    check = check_image(encoded("HEIF"), ImageLimits())
    assert (check.reason, check.detail) == ("needs_heic_extra", HEIC_NEEDS)
