"""A run looks at a folder of photos once before its work and once after it, and sees what changes in between."""

import os
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image
from support.console import inside
from support.helpers import photo_config
from support.living import Town, context, counted

from driftline.curate.core import files
from driftline.curate.core.atomic_io import read_json, sha256_file
from driftline.curate.fetch import job
from driftline.pipelines.run.living import grow
from driftline.pipelines.run.runner import run, status
from driftline.pipelines.stages.ingest import Ingest
from driftline.pipelines.stages.state import folder_of


def add(root: Path, name: str) -> None:
    (root / "photos" / "car").mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (64, 64)).save(root / "photos" / "car" / f"{name}.jpg")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A run of two photos, with dates in paths or sidecars; nothing is done."""
    config = photo_config("  per_class: 2").replace("dates: [path]", "dates: [path, sidecar]")
    (tmp_path / "driftline.yaml").write_text(config)
    for year in (2011, 2012):
        add(tmp_path, f"{year}-05-01")
    return tmp_path


@pytest.fixture
def walks(root: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each folder was listed."""
    counts: Counter[str] = Counter()
    real = os.scandir
    monkeypatch.setattr(os, "scandir", lambda place=".": (counts.update([str(place)]), real(place))[1])
    return counts


@pytest.mark.parametrize(
    ("command", "times"),
    [
        (lambda root: run(context(root), until="ingest"), 2),
        (lambda root: grow(context(root), until="ingest"), 2),
        (lambda root: status(context(root)), 1),
        (lambda root: inside("plan", root), 1),
    ],
    ids=["run", "grow", "status", "plan"],
)
def test_photos_are_walked_once_before_the_work_and_once_after_it(command, times, root, walks):
    run(context(root), until="ingest")
    add(root, "2013-05-01")
    walks.clear()
    command(root)
    assert walks[str(root / "photos" / "car")] == times


def test_a_photo_that_comes_while_a_run_works_is_seen_at_its_end(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Ingest.run
    monkeypatch.setattr(Ingest, "run", lambda *of: (real(*of), add(root, "2013-05-01"))[0])
    assert run(context(root), until="ingest")[0]["state"] == "stale"
    monkeypatch.undo()
    done = run(context(root), until="ingest")[0]
    assert (done["state"], done["counts"]["kept"]) == ("done", 3)


def test_files_that_the_store_has_are_not_read_for_their_digests(tmp_path, monkeypatch):
    town, read = Town(tmp_path / "town", 30), list[str]()
    folder = town.run(tmp_path / "run", 30)
    monkeypatch.setattr(files, "sha256_file", lambda path: (read.append(path.name), sha256_file(path))[1])
    with counted(town):
        run(context(folder), until="fetch")
    fetched = folder_of(folder, "fetch")
    listed = {name: digest for name, (_, digest) in read_json(fetched / "files.json").items()}
    assert listed == {name: sha256_file(fetched / name) for name in listed}
    assert "00000.tar" in listed
    assert not [name for name in read if name.endswith(".tar")]


def test_a_part_of_the_table_is_read_once_for_all_its_shards(tmp_path: Path) -> None:
    town = Town(tmp_path / "town", 60)
    folder = town.run(tmp_path / "run", 60)
    before = job._read.cache_info().misses
    with counted(town):
        run(context(folder), until="fetch")
    assert len(list(folder_of(folder, "fetch").glob("[0-9]*.tar"))) > 1
    assert job._read.cache_info().misses == before + 1
