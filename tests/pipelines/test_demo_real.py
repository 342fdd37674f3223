"""The pictures of `driftline demo --real`: free, dated, none seen by the network. test_wheel.py goes the
whole way with a few."""

from __future__ import annotations

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


def test_quick_and_real_exclude_each_other(tmp_path: Path) -> None:
    done = driftline("demo", "--real", "--quick", "--out", str(tmp_path / "demo"), here=tmp_path)
    assert done.returncode != 0
    assert "--real and --quick exclude each other" in done.stderr
