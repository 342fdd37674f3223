"""README's commands on real pictures that are not the demo's, offline, to the report."""

from __future__ import annotations

import csv
import re
import shlex
import zipfile
from collections import Counter
from pathlib import Path

import pytest
from support.console import driftline

ROOT = Path(__file__).resolve().parents[1]
FRUIT, YEARS, EACH = ("apples", "pears"), ("1911", "1912", "1913"), 10


@pytest.fixture
def album(shared: Path, tmp_path: Path) -> Path:
    """The USDA's watercolours as somebody would keep them: a folder for each fruit, the year in each name."""
    counts: Counter[tuple[str, str]] = Counter()
    with zipfile.ZipFile(shared / "usda" / "usda_pomological.zip") as archive:
        names = {Path(name).name: name for name in archive.namelist()}
        for row in csv.DictReader((shared / "usda" / "usda_metadata.csv").open(encoding="utf-8")):
            kind = row["label"], row["year"][:4]
            if kind[0] in FRUIT and kind[1] in YEARS and row["filename"] in names and counts[kind] < EACH:
                counts[kind] += 1
                place = tmp_path / "album" / kind[0] / f"{kind[1]}-05-{counts[kind]:02d}.jpg"
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(archive.read(names[row["filename"]]))
    assert set(counts.values()) == {EACH}
    return tmp_path / "album"


def commands(page: str, heading: str = "") -> list[str]:
    """The commands of a page, from a heading to the next one."""
    text = (ROOT / page).read_text(encoding="utf-8")
    text = text if not heading else re.split(r"^## ", text.split(f"\n## {heading}\n")[1], maxsplit=1, flags=re.M)[0]
    blocks = re.findall(r"^```console\n(.*?)^```", text, re.S | re.M)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ driftline")]


def follow(command: str, here: Path) -> str:
    done = driftline(*shlex.split(command)[1:], here=here)
    lacks = 1 if " plan " in command and "is not on this machine" in done.stdout else 0  # tests have no network
    assert done.returncode == lacks, f"{command}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.mark.proof("real data")
@pytest.mark.shared(twin="tests/pipelines/test_hour.py::test_the_first_hour")
def test_the_readmes_commands_for_photos_of_your_own_on_real_pictures(album: Path) -> None:
    here = album.parent
    album.rename(here / "photos")
    mine = [command for command in commands("README.md", "Your own photos") if " holidays" in command]
    assert [shlex.split(command)[1] for command in mine] == ["init", "plan", "run", "status"]
    said = {shlex.split(command)[1]: follow(command, here) for command in mine}
    assert "photos     60" in said["plan"]
    assert "1911: 20, 1912: 20, 1913: 20" in said["plan"]
    assert re.search(r"^bucket +done +60 +60", said["status"], re.M)
