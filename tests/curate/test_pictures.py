"""Pictures as people see them, whatever their bytes: cases 14, 15, 17, 21, 22 and 23 of inputs that people reported."""

import io
import logging
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hostile.mutations import mutate
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageCms, PngImagePlugin
from support.fates import fate, fates_in
from support.helpers import saved

from driftline.curate.core.errors import BadInput
from driftline.curate.core.seeding import rng_for
from driftline.curate.foreign import images
from driftline.curate.foreign.images import NotRGB, Picture, kind_of, open_image, prepared, read_rgb, reads_heic
from driftline.curate.images.changes import plain_bytes
from driftline.curate.images.checks import ImageLimits, check_image
from driftline.curate.images.local_files import counts_text, files_below
from driftline.curate.images.near_duplicates import hashes_of, near_copies
from driftline.curate.sources.folder import Folder
from driftline.pipelines.web.rendering import small

RED, BLUE, WHITE = (255, 0, 0), (0, 0, 255), (255, 255, 255)
TURNS: list[Image.Transpose | None] = [
    None, Image.Transpose.FLIP_LEFT_RIGHT, Image.Transpose.ROTATE_180, Image.Transpose.FLIP_TOP_BOTTOM,
    Image.Transpose.TRANSPOSE, Image.Transpose.ROTATE_90, Image.Transpose.TRANSVERSE, Image.Transpose.ROTATE_270,
]  # fmt: skip
"""by orientation - 1: what a camera that is held so does to the picture"""


def tagged(orientation: Any) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif.tobytes()


def scene(width: int = 96, height: int = 64) -> Image.Image:
    """A picture without symmetry."""
    coarse = rng_for(0, "pictures").integers(0, 256, (4, 6, 3)).astype(np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def look(data: bytes) -> Picture:
    with open_image(data, "it") as image:
        return prepared(image)


def shades(picture: Picture) -> list[int]:
    """The grey values in order of rows."""
    pixels = np.asarray(picture.image)
    assert (pixels == pixels[..., :1]).all()
    return [int(v) for v in pixels[..., 0].ravel()]


def far(a: Image.Image, b: Image.Image) -> float:
    return float(np.abs(np.asarray(a, np.int16) - np.asarray(b, np.int16)).mean())


class TestCase21Orientation:
    def test_its_own_input(self) -> None:
        stored = np.zeros((2, 4, 3), np.uint8)
        stored[:, 0] = RED
        turned = Image.fromarray(stored).transpose(Image.Transpose.ROTATE_270)
        a = read_rgb(saved(Image.fromarray(stored), "JPEG", exif=tagged(6), quality=95, subsampling=0), "a")
        b = read_rgb(saved(turned, "JPEG", quality=95, subsampling=0), "b")
        assert a.size == b.size == (2, 4)
        assert far(a, b) < 3
        assert np.asarray(a)[0, 0, 0] > 200 > 60 > np.asarray(a)[-1, 0, 0], "red is on top"

    @pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF", "HEIF"])
    @pytest.mark.parametrize("orientation", range(1, 9))
    def test_each_orientation_of_each_format_is_upright(self, kind: str, orientation: int) -> None:
        if kind == "HEIF" and not reads_heic():
            pytest.skip("needs the extra heic")
        way, how = TURNS[orientation - 1], {"lossless": True} if kind == "WEBP" else {"quality": 95}
        stored = scene() if way is None else scene().transpose(way)
        data = saved(stored, kind, exif=tagged(orientation), **({} if kind in ("PNG", "TIFF") else how))
        picture = look(data)
        assert picture.image.size == (96, 64)
        assert far(picture.image, scene()) < (9 if kind == "HEIF" else 3)
        assert ("turned upright" in picture.steps) == (orientation > 1)

    @pytest.mark.parametrize("orientation", [0, 9, 65535])
    def test_other_values_are_shown_as_stored(self, orientation: int) -> None:
        exif = Image.Exif()
        exif[0x0112] = orientation
        picture = look(saved(scene(), "JPEG", exif=exif))
        assert (picture.image.size, picture.steps) == ((96, 64), ())

    def test_a_damaged_directory_turns_nothing(self) -> None:
        entry, wrong = b"\x01\x12\0\x03\0\0\0\x01", b"\x01\x12\0\xff\xff\xff\xff\xff"
        data = saved(scene(), "JPEG", exif=tagged(6)).replace(entry, wrong)
        assert look(data).steps == ()

    def test_size_aspect_and_copies_follow_the_upright_picture(self) -> None:
        tall = saved(scene(30, 90).transpose(Image.Transpose.ROTATE_90), "JPEG", exif=tagged(6), quality=95)
        check = check_image(tall, ImageLimits())
        assert (check.width, check.height, check.shown) == (30, 90, "turned upright")
        same = [saved(scene(), "JPEG", quality=95), saved(scene().transpose(Image.Transpose.ROTATE_90), "JPEG",
                exif=tagged(6), quality=95)]  # fmt: skip
        assert near_copies(hashes_of(same), 4).tolist() == [0, 0]

    @pytest.mark.parametrize("edge", [32, 200])
    def test_a_thumbnail_is_of_the_same_picture(self, edge: int) -> None:
        data = saved(scene(600, 400).transpose(Image.Transpose.ROTATE_90), "JPEG", exif=tagged(6), quality=95)
        with Image.open(io.BytesIO(small(data, edge))) as thumbnail:
            assert far(thumbnail, scene(600, 400).resize(thumbnail.size)) < 12

    @pytest.mark.parametrize("orientation", range(2, 9))
    @pytest.mark.parametrize("sampling", [0, 1, 2])
    def test_its_plain_form_keeps_the_tables_so_that_little_is_lost(self, orientation: int, sampling: int) -> None:
        way = TURNS[orientation - 1]
        stored = scene().transpose(way) if way is not None else scene()
        data = saved(stored, "JPEG", exif=tagged(orientation), quality=70, subsampling=sampling)
        plain, words = plain_bytes(data)
        with Image.open(io.BytesIO(plain)) as image:
            assert image.getexif().get(0x0112) is None
            assert far(image.convert("RGB"), look(data).image) < 1.5
        assert len(plain) < 1.5 * len(data)
        assert words == "turned upright; compressed again"
        assert plain_bytes(plain) == (plain, "none")


def rgba(below: tuple[int, int, int]) -> Image.Image:
    """A black square on nothing; `below` is the hidden colour."""
    pixels = np.zeros((8, 8, 4), np.uint8)
    pixels[..., :3] = below
    pixels[2:6, 2:6] = (0, 0, 0, 255)
    return Image.fromarray(pixels)


def by_index(image: Image.Image) -> bytes:
    palette = image.convert("RGB").quantize(4)
    return saved(palette, "PNG", transparency=palette.getpixel((0, 0)))


TRANSPARENT: dict[str, Callable[[Image.Image], bytes]] = {
    "RGBA": lambda image: saved(image, "PNG"),
    "LA": lambda image: saved(image.convert("LA"), "PNG"),
    "P with tRNS": by_index,
    "P with a table of alphas": lambda image: saved(image.quantize(4), "PNG"),
    "L with tRNS": lambda image: saved(image.convert("RGB").convert("L"), "PNG", transparency=105),
    "RGB with tRNS": lambda image: saved(image.convert("RGB"), "PNG", transparency=(255, 0, 255)),
    "WebP": lambda image: saved(image, "WEBP", lossless=True),
    "TIFF": lambda image: saved(image, "TIFF"),
    "GIF": lambda image: saved(image, "GIF"),
    "AVIF": lambda image: saved(image, "AVIF", quality=100),
}


class TestCase22Transparency:
    @pytest.mark.parametrize("kind", TRANSPARENT)
    def test_hidden_pixels_are_white(self, kind: str) -> None:
        picture = look(TRANSPARENT[kind](rgba((255, 0, 255))))
        pixels = np.asarray(picture.image, np.int16)
        assert np.abs(pixels[0, 0] - 255).max() <= 3
        assert pixels[4, 4].max() <= 3
        assert "transparency over white" in picture.steps

    def test_what_is_half_seen_is_half_white(self) -> None:
        image = Image.new("RGBA", (8, 8), (0, 0, 0, 128))
        assert np.asarray(look(saved(image, "PNG")).image)[0, 0].tolist() == [127, 127, 127]

    def test_all_of_it_hidden_is_a_white_picture(self) -> None:
        check = check_image(saved(Image.new("RGBA", (8, 8), (9, 9, 9, 0)), "PNG"), ImageLimits())
        assert (check.reason, check.shown) == (None, "transparency over white")

    def test_an_alpha_that_hides_nothing_changes_nothing(self) -> None:
        data = saved(scene().convert("RGBA"), "PNG")
        assert plain_bytes(data) == (data, "none")

    def test_tRNS_of_16_bits(self) -> None:
        grey = np.full((4, 4), 65535, np.uint16)
        grey[1, 1] = 257
        picture = look(saved(Image.fromarray(grey), "PNG", transparency=257))
        assert shades(picture)[5] == 255
        assert "transparency over white" in picture.steps

    def test_a_palette_without_entries_is_a_picture_or_a_sentence(self) -> None:
        image = Image.new("P", (4, 4))
        image.putpalette([])
        assert check_image(saved(image, "PNG"), ImageLimits()).reason in (None, "broken_image")

    def test_its_plain_form_is_the_same_everywhere(self) -> None:
        plain, words = plain_bytes(saved(rgba((255, 0, 255)), "PNG"))
        with Image.open(io.BytesIO(plain)) as image:
            assert (image.mode, image.getpixel((0, 0))) == ("RGB", WHITE)
        assert words == "transparency over white; stored as PNG"


def ramp(most: float, kind: type) -> Image.Image:
    return Image.fromarray(np.linspace(0, most, 256).astype(kind).reshape(16, 16))


class TestCase23Depth:
    @pytest.mark.parametrize("kind", ["PNG", "TIFF"])
    def test_16_bits_fill_the_range_by_their_depth(self, kind: str) -> None:
        picture = look(saved(ramp(65535, np.uint16), kind))
        assert shades(picture) == list(range(256))
        assert picture.steps == ("16-bit grey scaled to 8 bits",)
        dark = look(saved(ramp(4095, np.uint16), kind))
        assert (shades(dark)[-1], "16-bit grey scaled to 8 bits" in dark.steps) == (16, True)

    def test_floats_and_32_bits_are_refused_by_name(self) -> None:
        big = {256: 2, 257: 1, 258: 32, 259: 1, 262: 1, 273: 200, 277: 1, 278: 1, 279: 8}
        signed = big | {258: 16, 279: 4, 339: 2}
        for data in (saved(ramp(1, np.float32), "TIFF"), tiff(big, bytes(8)), tiff(signed, b"\0\x80\xff\x7f")):
            with pytest.raises(NotRGB, match="Expected 16 bits"):
                look(data)
            assert check_image(data, ImageLimits()).reason == "not_rgb"

    def test_12_bits(self) -> None:
        tags = {256: 2, 257: 1, 258: 12, 259: 1, 262: 1, 273: 200, 277: 1, 278: 1, 279: 3}
        picture = look(tiff(tags, bytes([0xFF, 0xF8, 0x00])))
        assert (shades(picture), picture.steps) == ([255, 128], ("12-bit grey scaled to 8 bits",))

    def test_white_is_zero(self) -> None:
        tags = {256: 2, 257: 1, 258: 16, 259: 1, 262: 0, 273: 200, 277: 1, 278: 1, 279: 4}
        assert shades(look(tiff(tags, bytes([0, 0, 0xFF, 0xFF])))) == [255, 0]

    def test_16_bit_colours_are_cut_and_said(self) -> None:
        tags = {256: 1, 257: 1, 258: 16, 259: 1, 262: 2, 273: 200, 277: 3, 278: 1, 279: 6}
        picture = look(tiff(tags, b"\x12\xab\x34\xcd\x56\xef", 3))
        assert np.asarray(picture.image).ravel().tolist() == [0xAB, 0xCD, 0xEF]
        assert picture.steps == ("16-bit colours cut to 8 bits",)

    def test_two_scans_are_no_copies_of_each_other(self) -> None:
        grey = np.asarray(scene().convert("L")).astype(np.uint16)
        scans = [saved(Image.fromarray(values), "TIFF") for values in (grey * 257, 65535 - grey * 200)]
        assert near_copies(hashes_of(scans), 4).tolist() == [0, 1]

    def test_its_plain_form_is_grey_of_8_bits(self) -> None:
        plain, words = plain_bytes(saved(ramp(65535, np.uint16), "TIFF"))
        with Image.open(io.BytesIO(plain)) as image:
            assert (image.format, image.mode) == ("PNG", "L")
        assert words == "16-bit grey scaled to 8 bits; stored as PNG"


def tiff(tags: dict[int, int], pixels: bytes, channels: int = 1) -> bytes:
    """A little-endian TIFF of one strip at byte 200; all values are SHORT or LONG by their size."""
    wide = {258: channels} if channels > 1 else {}
    entries = b"".join(
        tag.to_bytes(2, "little")
        + (b"\x03\0" if value < 65536 else b"\x04\0")
        + wide.get(tag, 1).to_bytes(4, "little")
        + (180 if tag in wide else value).to_bytes(4, "little")
        for tag, value in sorted(tags.items())
    )
    head = b"II*\0\x08\0\0\0" + len(tags).to_bytes(2, "little") + entries + bytes(4)
    extra = b"".join(tags[258].to_bytes(2, "little") for _ in range(channels))
    return head.ljust(180, b"\0") + extra.ljust(20, b"\0") + pixels


class TestInks:
    """CMYK: by the file's profile, which decides what its inks look like."""

    def test_without_a_profile_it_is_said(self) -> None:
        picture = look(saved(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG", quality=95))
        assert picture.steps == ("CMYK to sRGB without a profile",)
        assert np.asarray(picture.image)[0, 0, 0] > 200 > 60 > np.asarray(picture.image)[0, 0, 2]

    @pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
    @pytest.mark.parametrize(
        "profile", [b"no profile", ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()]
    )
    def test_a_profile_of_no_use_is_left_aside(self, kind: str, profile: bytes) -> None:
        data = saved(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), kind, icc_profile=profile)
        assert look(data).steps == ("CMYK to sRGB without a profile",)

    def test_its_plain_form_is_rgb_without_the_profile_of_inks(self) -> None:
        plain, _ = plain_bytes(saved(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG", icc_profile=b"of inks"))
        with Image.open(io.BytesIO(plain)) as image:
            assert (image.mode, image.info.get("icc_profile")) == ("RGB", None)


class TestFrames:
    @pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF", "MPO", "AVIF"])
    def test_the_first_that_is_not_blank(self, kind: str) -> None:
        blank, black = Image.new("RGB", (96, 64), (9, 9, 9)), Image.new("RGB", (96, 64))
        picture = look(saved(black, kind, save_all=True, append_images=[blank, scene(), black]))
        assert far(picture.image, scene()) < 12
        assert "the first that is not blank" in picture.steps[0]

    @pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
    def test_a_good_first_one_stays(self, kind: str) -> None:
        other = scene().transpose(Image.Transpose.ROTATE_180)
        picture = look(saved(scene(), kind, save_all=True, append_images=[other]))
        assert far(picture.image, scene()) < 12
        assert picture.steps == ("first image only",)

    def test_ten_thousand_frames_cost_a_few(self) -> None:
        frame = saved(Image.new("L", (4, 4)), "GIF")
        block = frame[frame.index(b",") : -1]
        many = frame[:-1] + b"".join(b"!\xf9\x04\0\x01\0\0\0" + block for _ in range(10_000)) + b";"
        assert look(many).steps == ("first image only",)

    def test_a_later_page_is_held_to_the_limits(self) -> None:
        pages = saved(Image.new("L", (8, 8)), "TIFF", save_all=True, append_images=[scene(300, 200).convert("L")])
        assert check_image(pages, ImageLimits(max_pixels=1000)).reason == "too_many_pixels"
        assert check_image(pages, ImageLimits()).width == 300


class TestCase14Counting:
    def photos(self, folder: Path) -> None:
        for name in ("a.jpg", "b.jfif", "c.jpe", "f", "g.JPEG", "h.tmp"):
            (folder / name).write_bytes(saved(scene(), "JPEG"))
        (folder / "d.jxl").write_bytes(b"\xff\x0a" + bytes(60))
        (folder / "e.jp2").write_bytes(saved(scene(), "JPEG2000"))

    def test_its_own_input_and_what_is_beside(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(images, "reads_jxl", lambda: False)
        self.photos(tmp_path)
        (tmp_path / "@eaDir").mkdir()
        (tmp_path / "@eaDir" / "a.jpg").write_bytes(saved(scene(), "JPEG"))
        for name, data in {
            "a.jpg.json": b"{}", "a.xmp": b"<x/>", "notes.txt": b"x", "._a.jpg": b"\0\x05\x16\x07" + bytes(99),
            ".DS_Store": b"\0\0\0\1Bud1", "a.mp4": b"\0\0\0\x18ftypmp42", "b.pdf": b"%PDF", "README": b"x",
            "a.nef": b"MM\0*" + bytes(99), "z.jpg": b"no picture", "empty.png": b"",
        }.items():  # fmt: skip
            (tmp_path / name).write_bytes(data)
        source = Folder(path=str(tmp_path))
        rows = pa.Table.from_batches(source.batches()).to_pylist()
        faults = Counter(row["fault"] for row in rows)
        assert faults == {None: 7, "needs_jxl_extra": 1, "unreadable_image": 2}
        left = Counter(row["fault"] for row in source.left_out())
        assert left == {"sidecar": 3, "apple_double": 1, "of_the_system": 1, "not_a_photo": 3, "thumbnail": 1,
                        "raw_beside_photo": 1}  # fmt: skip
        assert faults.total() + left.total() == sum(path.is_file() for path in tmp_path.rglob("*"))
        text = counts_text(files_below(tmp_path).counts())
        assert "not_a_photo 3 (no suffix 1, .mp4 1, .pdf 1)" in text

    @pytest.mark.parametrize("name", ["x.hif", "x.heics", "x.png", "x"])
    def test_heic_by_any_name(self, name: str, tmp_path: Path) -> None:
        if not reads_heic():
            pytest.skip("needs the extra heic")
        (tmp_path / name).write_bytes(saved(scene(), "HEIF"))
        (row,) = pa.Table.from_batches(Folder(path=str(tmp_path)).batches()).to_pylist()
        assert (row["fault"], row["path"]) == (None, str(tmp_path / name))

    def test_jpeg_2000_is_stored_as_jpeg(self) -> None:
        check = check_image(saved(scene(), "JPEG2000", quality_mode="rates", quality_layers=[4]), ImageLimits())
        assert (check.reason, check.extension, check.changes) == (None, "jpg", "re-encoded from JPEG 2000 as JPEG")

    def test_jpeg_xl_with_its_extra(self) -> None:
        pytest.importorskip("pillow_jxl")
        assert images.reads_jxl()
        picture = look(saved(scene(), "JXL", lossless=True, exif=tagged(6)))
        assert (picture.image.size, picture.steps) == ((96, 64), ()), "its decoder turns, EXIF does not count"

    @pytest.mark.parametrize("text", ["BMW 2002\nphotographed in May", "BM", "II*", "GIF8 is old"])
    def test_a_text_that_begins_as_a_picture_is_none(self, text: str, tmp_path: Path) -> None:
        (tmp_path / "a.jpg").write_bytes(saved(scene(), "JPEG"))
        (tmp_path / "b.log").write_text(text)
        (tmp_path / "c").write_bytes(saved(scene(), "BMP"))
        assert files_below(tmp_path).counts() == {"not_a_photo": {".log": 1}}
        assert list(files_below(tmp_path).photos.values()) == ["JPEG", "BMP"]

    def test_links_that_lead_nowhere_and_pipes(self, tmp_path: Path) -> None:
        self.photos(tmp_path)
        (tmp_path / "gone.jpg").symlink_to(tmp_path / "nowhere.jpg"), (tmp_path / "round").symlink_to(tmp_path)
        assert files_below(tmp_path).counts() == {"file_unreadable": {".jpg": 1}}

    def test_a_link_out_of_the_folder_is_followed_only_if_asked_for(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "secret.jpg").write_bytes(saved(scene(), "JPEG"))
        (tmp_path / "a" / "1.jpg").write_bytes(saved(scene(), "JPEG"))
        (tmp_path / "a" / "2.jpg").symlink_to("1.jpg")
        (tmp_path / "a" / "3.jpg").symlink_to(tmp_path / "secret.jpg")
        by_default, asked = Folder(path=str(tmp_path / "a")), Folder(path=str(tmp_path / "a"), links=True)
        assert [len(next(source.batches())) for source in (by_default, asked)] == [2, 3]
        assert [row["fault"] for row in by_default.left_out()] == ["link_outside"]

    def test_a_folder_without_photos_says_what_it_holds(self, tmp_path: Path) -> None:
        (tmp_path / "film.mp4").write_bytes(b"\0\0\0\x18ftypmp42")
        with pytest.raises(BadInput, match=r"holds no photos, but not_a_photo 1 \(\.mp4 1\)"):
            list(Folder(path=str(tmp_path)).batches())


class TestCase15FirstBytes:
    def test_a_heic_named_jpg_has_one_fate_in_any_company(self, tmp_path: Path) -> None:
        if not reads_heic():
            pytest.skip("needs the extra heic")
        data = saved(scene(), "HEIF")
        alone, together = tmp_path / "a", tmp_path / "b"
        for folder, names in ((alone, ["IMG_1.jpg"]), (together, ["IMG_0.heic", "IMG_1.jpg", "IMG_2.heic"])):
            folder.mkdir()
            for name in names:
                (folder / name).write_bytes(data)
        for folder in (alone, together):
            rows = pa.Table.from_batches(Folder(path=str(folder)).batches()).to_pylist()
            assert {row["fault"] for row in rows} == {None}

    @pytest.mark.parametrize("name", ["x.heic", "x.png", "x.nef", "x.jxl"])
    def test_a_jpeg_by_any_name(self, name: str, tmp_path: Path) -> None:
        (tmp_path / name).write_bytes(saved(scene(), "JPEG"))
        (row,) = pa.Table.from_batches(Folder(path=str(tmp_path)).batches()).to_pylist()
        assert row["fault"] is None

    @pytest.mark.parametrize(
        ("head", "kind"),
        [
            (b"\0\0\0\x1cftypmif1\0\0\0\0mif1avifmiaf", "AVIF"),
            (b"\0\0\0\x1cftypmif1\0\0\0\0mif1heicmiaf", "HEIF"),
            (b"\0\0\0\x18ftyphevs\0\0\0\0msf1", "HEIF"),
            (b"\0\0\0\x18ftypisom\0\0\0\0isom", None),
            (b"RIFF\0\0\0\0WAVEfmt ", None),
        ],
    )
    def test_containers_by_their_brands(self, head: bytes, kind: str | None) -> None:
        assert kind_of(head) == kind


class TestCase17UnicodeForms:
    NFC, NFD = "caf\u00e9.jpg", "cafe\u0301.jpg"

    @pytest.mark.parametrize("form", [NFC, NFD])
    def test_one_id_in_either_form(self, form: str, tmp_path: Path) -> None:
        (tmp_path / form).write_bytes(saved(scene(), "JPEG"))
        (row,) = pa.Table.from_batches(Folder(path=str(tmp_path)).batches()).to_pylist()
        assert row["id"] == "caf-jpg-a4baa578"

    @pytest.mark.parametrize(
        ("table", "disk"),
        [(NFC, NFD), (NFD, NFC), (f"e\u0301/{NFC}", f"\u00e9/{NFD}"), ("\ud55c.jpg", "\u1112\u1161\u11ab.jpg"),
         ("s\u0323\u0307.jpg", "\u1e69.jpg")],
    )  # fmt: skip
    def test_a_table_finds_the_file_in_either_form(self, table: str, disk: str, tmp_path: Path) -> None:
        from driftline.curate.sources.table import Delimited

        file = tmp_path / "photos" / disk
        file.parent.mkdir(parents=True)
        file.write_bytes(saved(scene(), "JPEG"))
        (tmp_path / "photos" / "t.csv").write_text(f"file,day\n{table},2012-05-01\n", encoding="utf-8")
        source = Delimited(path=str(tmp_path / "photos" / "t.csv"), columns={"path": "file", "uploaded": "day"})
        (row,) = pa.Table.from_batches(source.batches()).to_pylist()
        assert row["fault"] is None
        assert Path(row["path"]).is_file()

    def test_both_forms_in_one_folder_are_named(self, tmp_path: Path) -> None:
        for form in (self.NFC, self.NFD):
            (tmp_path / form).write_bytes(saved(scene(), "JPEG"))
        source = Folder(path=str(tmp_path))
        assert len(pa.Table.from_batches(source.batches())) == 1
        (left,) = source.left_out()
        assert left["fault"] == "name_in_two_forms"


@cache
def sound() -> list[bytes]:
    """A picture of every kind."""
    exif = Image.Exif()
    exif[0x0112] = 6
    exif.get_ifd(0x8769).update({0x9003: "2010:05:01 10:00:00", 0x927C: bytes(range(256))})
    return [
        *(saved(scene(24, 16), kind, exif=exif.tobytes()) for kind in ("JPEG", "PNG", "WEBP", "TIFF", "AVIF")),
        *(make(rgba((255, 0, 255))) for make in TRANSPARENT.values()),
        *(saved(ramp(65535, np.uint16), kind) for kind in ("PNG", "TIFF")),
        saved(ramp(1, np.float32), "TIFF"),
        saved(scene(24, 16).convert("CMYK"), "JPEG"),
        *(saved(scene(24, 16), kind, save_all=True, append_images=[scene(24, 16)]) for kind in ("GIF", "MPO", "TIFF")),
        *([saved(scene(24, 16), "HEIF")] if reads_heic() else []),
        *([saved(scene(24, 16), "JXL")] if images.reads_jxl() else []),
        saved(scene(24, 16), "JPEG2000"),
        saved(scene(24, 16), "BMP"),
        saved(scene(24, 16), "PNG", pnginfo=xmp()),
    ]


def mutants(n: int, seed: int = 0) -> list[bytes]:
    """Pictures of every kind with bytes changed, cut, repeated or joined."""
    draw = random.Random(seed)
    damaged = []
    for _ in range(n):
        data = bytearray(draw.choice(sound()))
        for _ in range(draw.choice((1, 1, 2, 8))):
            at = draw.randrange(min(len(data), draw.choice((64, 400, len(data)))))
            how = draw.randrange(4)
            if how == 0:
                data[at] = draw.randrange(256)
            elif how == 1:
                data[at : at + draw.randrange(1, 9)] = bytes(draw.choice((0, 255)) for _ in range(draw.randrange(9)))
            elif how == 2:
                del data[max(16, at) :]
            else:
                data[at:at] = data[at : at + draw.randrange(1, 99)]
        damaged.append(bytes(data))
    return damaged


def xmp() -> PngImagePlugin.PngInfo:
    info = PngImagePlugin.PngInfo()
    info.add_itxt("XML:com.adobe.xmp", '<!DOCTYPE x [<!ENTITY a "aaaa">]><x tiff:Orientation="8">&a;</x>')
    return info


def test_damaged_pictures_have_one_fate_in_any_order_and_no_traceback() -> None:
    """Ten thousand of them: `make fuzz`, tests/hostile/fuzz.py."""
    files = mutants(250)
    fates = [fate(data) for data in files]
    order = random.Random(1).sample(range(len(files)), len(files))
    assert [fate(files[i]) for i in order] == [fates[i] for i in order]
    reasons = Counter(one[0] for one in fates)
    assert reasons[None] > 25
    assert reasons.total() - reasons[None] > 25


SIDECARS = {  # ending → content
    ".json": b'{"photoTakenTime": {"timestamp": "1258375918"}, "date": "2011-02"}',
    ".supplemental-metadata.json": b'{"photoTakenTime": {"timestamp": "1258375918"}}',
    ".xmp": b'<x exif:DateTimeOriginal="1985-07-01T12:00:00+02:00" xmp:CreateDate="2019"/>',
}


@pytest.fixture(scope="module")
def worker() -> Iterator[ProcessPoolExecutor]:
    """Another process, in which nothing was opened yet."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        yield pool


@pytest.mark.filterwarnings("ignore")  # Pillow warns of damaged tags
@given(st.randoms(use_true_random=False))
def test_a_photo_with_its_sidecar_has_one_fate_in_any_order_company_and_process(worker, draw):
    """`make fuzz` does it with more."""
    endings = draw.choices([*SIDECARS], k=4)
    files = [
        (data, draw.choice([".jpg", ".png", ".heic", ".tif", ".jp2"]), ending, mutate(SIDECARS[ending], ending, draw))
        for data, ending in zip(mutants(4, draw.getrandbits(32)), endings, strict=True)
    ]
    order = draw.sample(range(4), 4)
    with tempfile.TemporaryDirectory() as folder:
        one, two, three = (Path(folder) / name for name in "123")
        for place in (one, two, three):
            place.mkdir()
        there = worker.submit(fates_in, two, files, order[:3])
        here = fates_in(one, files, list(range(4)))
        assert there.result() == {i: here[i] for i in order[:3]}
        assert fates_in(three, files, order[::-1]) == here


def test_sixty_five_thousand_pixels_in_a_row() -> None:
    data = saved(Image.new("RGB", (65_500, 1)), "JPEG", exif=tagged(6))
    assert check_image(data, ImageLimits(max_edge=70_000)).height == 65_500
    assert check_image(data, ImageLimits()).reason == "too_many_pixels"


def test_a_bomb_of_a_maker_note_costs_nothing() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    exif.get_ifd(0x8769)[0x927C] = b"Nikon\0\x02\x10\0\0MM\0*\0\0\0\x08\xff\xff" + b"\xff" * 40_000
    picture = look(saved(scene(), "JPEG", exif=exif))
    assert picture.steps == ("turned upright",)


def test_what_the_decoder_logs_is_not_printed(monkeypatch, capfd):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    data = tiff({256: 8, 257: 8, 258: 8, 259: 1, 262: 1, 273: 200, 277: 1027, 279: 64}, bytes(64))
    with pytest.raises(BadInput, match="cannot be decoded"):
        look(data)
    assert capfd.readouterr() == ("", "")
