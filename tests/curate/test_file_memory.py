"""What was read of photos is used until something that decides it changes; the result is that of a fresh reading."""

import json
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from PIL import Image

from driftline.curate.core import files
from driftline.curate.images import local_files
from driftline.curate.sources import folder
from driftline.curate.sources.base import Workplace
from driftline.curate.sources.folder import Folder


@pytest.fixture
def album(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six photos in two folders, one of which has a sidecar, and a note."""
    monkeypatch.setattr(files, "UNSETTLED", -60.0)  # as if all had been written long ago
    for i in range(6):
        place = tmp_path / "photos" / ("a", "b")[i % 2] / f"{i}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        taken(place, 2001 + i)
    (tmp_path / "photos" / "b" / "1.jpg.json").write_text('{"date": "2011-01-01"}')
    (tmp_path / "photos" / "b" / "note.txt").write_text("x")
    for path in tmp_path.glob("photos/*/*"):
        os.utime(path, (10**9, 10**9))  # a clock tick of the system may be longer than a test
    return tmp_path / "photos"


def taken(place: Path, year: int) -> None:
    tags = Image.Exif()
    tags.get_ifd(0x8769)[0x9003] = f"{year}:07:08 12:00:00"
    Image.new("RGB", (8, 8)).save(place, exif=tags)


def read(album: Path, monkeypatch: pytest.MonkeyPatch, rows: int = 65_536) -> tuple[list[pa.RecordBatch], set[str]]:
    """The records, which must be those of a reading without memory, and the names of the photos whose EXIF was read."""
    source, opened, memory = Folder(path=str(album)), set[str](), album.with_name("memory")
    fresh = list(source.batches(rows)), source.left_out()
    with monkeypatch.context() as patch:
        real = folder._exif
        patch.setattr(folder, "_exif", lambda path, kind: (opened.add(path.name), real(path, kind))[1])
        at = Workplace(memory=memory)
        batches = list(source.batches(rows, 0, at))
        assert (batches, source.left_out(at)) == fresh
    return batches, opened


ALL = {f"{i}.jpg" for i in range(6)}


def test_a_second_reading_opens_no_file(album: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, opened = read(album, monkeypatch)
    assert opened == ALL
    heads: list[str] = []
    real = local_files._judged
    monkeypatch.setattr(local_files, "_judged", lambda path, *of: (heads.append(path.name), real(path, *of))[1])
    batches, opened = read(album, monkeypatch)
    assert (opened, sorted(heads)) == (set(), sorted([*ALL, *ALL, *["1.jpg.json", "note.txt"] * 2])), "fresh twice"
    assert batches == first


CHANGES: dict[str, tuple[Callable[[Path], object], set[str]]] = {
    "a photo": (lambda album: taken(album / "a" / "2.jpg", 1999), {"2.jpg"}),
    "a photo with its old size and time": (
        lambda album: (
            time.sleep(0.02),
            taken(album / "a" / "2.jpg", 1999),
            os.utime(album / "a" / "2.jpg", (10**9, 10**9)),
        ),
        {"2.jpg"},
    ),
    "a new photo": (lambda album: taken(album / "a" / "0b.jpg", 1999), {"0b.jpg"}),
    "a photo less": (lambda album: (album / "a" / "2.jpg").unlink(), set()),
    "a sidecar": (lambda album: (album / "b" / "1.jpg.json").write_text('{"date": "1980-01-01"}'), {"1.jpg"}),
    "a sidecar less": (lambda album: (album / "b" / "1.jpg.json").unlink(), {"1.jpg"}),
    "a sidecar in a folder without": (lambda album: (album / "a" / "0.xmp").write_text("<x/>"), {"0.jpg"}),
    "a sidecar in capitals": (lambda album: (album / "b" / "3.JPG.JSON").write_text("{}"), {"3.jpg"}),
    "a photo that is none": (lambda album: (album / "b" / "3.jpg").write_text("x"), {"3.jpg"}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_has_changed_is_read_again(change: str, album: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read(album, monkeypatch)
    do, again = CHANGES[change]
    do(album)
    assert read(album, monkeypatch)[1] == again
    assert read(album, monkeypatch)[1] == (again if change == "a photo that is none" else set())


def test_other_code_reads_all_again(album: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read(album, monkeypatch)
    monkeypatch.setattr(folder, "code_of", lambda packages: "driftline 99")
    assert read(album, monkeypatch)[1] == ALL


def test_a_link_is_read_each_time(album: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (album / "a" / "link.jpg").symlink_to(album / "b" / "1.jpg")
    read(album, monkeypatch)
    assert read(album, monkeypatch)[1] == {"link.jpg"}


def test_a_reading_that_was_stopped_leaves_its_finished_parts(album: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    next(Folder(path=str(album)).batches(4, 0, Workplace(memory=album.with_name("memory"))))
    assert read(album, monkeypatch)[1] == {"3.jpg", "5.jpg"}


@pytest.mark.parametrize(
    "record", ["", "{}", "[1, 2, 3]", "[" * 9000, '["a", null, null, null, null]', json.dumps([1 << 70, *[None] * 4])]
)
def test_a_damaged_memory_costs_time_only(record: str, album: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read(album, monkeypatch)
    with sqlite3.connect(album.with_name("memory")) as base:
        base.execute("UPDATE seen SET value = ? WHERE kind = 'records'", (record,))
    assert read(album, monkeypatch)[1] == ALL
