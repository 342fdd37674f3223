"""The pictures of `driftline demo --real`: free, dated, none seen by the network; and the whole way with a few."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections import Counter
from importlib.resources import files
from pathlib import Path

import pytest
from support.console import driftline

from curate.core.run_log import RunLog
from curate.release import Release
from pipelines.demo import real

FOLDER = files("pipelines") / "demo" / "watercolours"


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


@pytest.mark.slow
def test_a_few_of_the_pictures_go_the_whole_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some = [row for row in rows() if row["label"] in ("apples", "pears")][::3]
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO((FOLDER / "pictures.zip").read_bytes())) as whole,
        zipfile.ZipFile(buffer, "w") as part,
    ):
        part.writestr("table.csv", whole.read("table.csv").splitlines()[0] + b"\n" + "\n".join(
            ",".join(f'"{value}"' for value in row.values()) for row in some
        ).encode())  # fmt: skip
        for row in some:
            part.writestr(f"images/{row['filename']}", whole.read(f"images/{row['filename']}"))
    monkeypatch.setattr(real, "packed", buffer.getvalue)
    monkeypatch.setattr(real, "FRUITS", ("apples", "pears"))
    monkeypatch.setattr(real, "LEARNERS", ["nearest-mean"])
    monkeypatch.setattr(real, "PROTOCOLS", ["clear-iid"])
    result = real.demo(tmp_path, RunLog(quiet=True), workers=1)
    assert list(result["parts"]) == ["unpack", "build", "evaluate", "report"]
    assert len(Release.open(tmp_path).buckets) == 5
    page = Path(result["report"]).read_text(encoding="utf-8")
    assert "National Agricultural Library" in page
    assert "before 1904" in page
    assert json.loads((tmp_path / "demo.json").read_text(encoding="utf-8"))["parts"] == result["parts"]


def test_quick_and_real_exclude_each_other(tmp_path: Path) -> None:
    done = driftline("demo", "--real", "--quick", "--out", str(tmp_path / "demo"), here=tmp_path)
    assert done.returncode != 0
    assert "--real and --quick exclude each other" in done.stderr
