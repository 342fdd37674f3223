"""The pictures of `driftline demo --real`: free, dated, none seen by the network. test_wheel.py goes the
whole way with a few."""

import csv
import io
import zipfile
from collections import Counter
from importlib.resources import files
from pathlib import Path

from support.console import driftline

from driftline.pipelines.demo import real

FOLDER = files("driftline.pipelines") / "demo" / "watercolours"


def rows() -> list[dict[str, str]]:
    with zipfile.ZipFile(io.BytesIO((FOLDER / "pictures.zip").read_bytes())) as archive:
        return list(csv.DictReader(io.StringIO(archive.read("table.csv").decode("utf-8"))))


def test_the_pictures_are_dated_labelled_and_small() -> None:
    table = rows()
    assert str(f"{len(table):,} pictures") in (FOLDER / "README.md").read_text(encoding="utf-8")
    assert "public domain" in (FOLDER / "README.md").read_text(encoding="utf-8")
    assert sum(len(path.read_bytes()) for path in FOLDER.iterdir()) < 10_000_000
    assert min(int(row["year"]) for row in table) >= real.CUTS[0], "the network was trained on what is older"
    assert {row["label"] for row in table} == set(real.FRUITS)
    cells = Counter((row["label"], sum(int(row["year"]) >= cut for cut in real.CUTS)) for row in table)
    assert max(cells.values()) <= 40


def test_full_and_real_exclude_each_other(tmp_path: Path) -> None:
    done = driftline("demo", "--real", "--full", "--out", str(tmp_path / "demo"), here=tmp_path)
    assert (done.returncode, "--full, --real and --album exclude each other" in done.stderr) == (2, True)


def test_an_album_is_photos_by_class_and_date_in_a_folder_of_its_own(tmp_path: Path) -> None:
    assert driftline("demo", "--album", "album", here=tmp_path).stdout == "album: album, 60 photos\n"
    photos = sorted(path.relative_to(tmp_path).as_posix() for path in (tmp_path / "album").rglob("*.jpg"))
    assert (len(photos), photos[0], photos[-1]) == (60, "album/bus/2010-05-01.jpg", "album/car/2012-05-10.jpg")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "own.jpg").write_bytes(b"")
    done = driftline("demo", "--album", "mine", here=tmp_path)
    assert (done.returncode, "holds own.jpg. Expected a new folder" in done.stderr) == (2, True)
