"""What leaves the machine: a release by default settings names no folder, no token and nothing that needs no credit."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.helpers import album, photo_config

from driftline.curate.core.errors import BadConfig
from driftline.curate.core.run_log import RunLog
from driftline.curate.export import EXPORTS
from driftline.curate.metadata.released_ids import FILE, released_ids
from driftline.curate.pretrain.pool import open_pool
from driftline.curate.release import Release
from driftline.pipelines.config.loader import load
from driftline.pipelines.reporting.trace import trace
from driftline.pipelines.run.runner import run
from driftline.pipelines.run.stage import Context
from driftline.pipelines.run.withdrawing import withdraw_photos

PERSON = "ZoeCanary"


def publish(root: Path, *changes: str) -> Release:
    run(Context(root, load(root / "driftline.yaml", changes), RunLog(quiet=True), changes=changes))
    return Release.open(root)


def everything(*folders: Path) -> str:
    """Names and bytes of every file below some folders, tables as text."""
    texts = []
    for path in (path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()):
        texts += [path.as_posix().removeprefix(str(folders[0].parent)), path.read_bytes().decode("latin-1")]
        if path.suffix == ".parquet":
            texts.append(str(pq.read_table(path).to_pylist()))
    return "\n".join(texts)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("careful") / "run"
    own = album(root / "photos" / PERSON, 4)
    (root / "photos" / "car").mkdir()
    shutil.copy(own / "car" / "2010-05-01.jpg", root / "photos" / "car")  # the same file in another folder
    (root / "driftline.yaml").write_text(photo_config("  per_class: 6"))
    publish(root, "release.per_class=3")
    return root


@pytest.fixture
def root(first: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(first, tmp_path / "run"))


def test_no_byte_of_a_release_or_its_exports_names_a_folder(root: Path, tmp_path: Path) -> None:
    release = publish(root, "release.per_class=3", "release.unlabelled=images")
    assert PERSON in everything(root / "stages" / "01_ingest"), "the test would see it"
    for name in EXPORTS:
        EXPORTS[name](release, tmp_path / "exports" / name)
    assert PERSON not in everything(release.path, tmp_path / "exports")
    assert "2010-05-0" not in everything(release.path, tmp_path / "exports"), "nor a file"
    without_tests = open_pool(root, None).dropped
    kept = publish(root, "release.per_class=3", "release.ids=path", "release.version=2.0.0")
    assert open_pool(root, None).dropped == without_tests
    assert PERSON in kept.table["id"][0].as_py()


def test_the_same_inputs_have_the_same_ids_in_another_folder_and_equal_files_have_two(first: Path, root: Path) -> None:
    (root / FILE).unlink()
    shutil.rmtree(next(root.glob("stages/*_publish")))
    release = publish(root, "release.per_class=3")
    assert everything(release.path) == everything(Release.open(first).path)
    assert (root / FILE).stat().st_mode & 0o777 == 0o600
    ids = released_ids(root)
    equal = [name for id_, name in ids.items() if "car-2010-05-01-jpg" in id_]
    assert len(set(ids.values())) == len(ids) == 25
    assert max(equal) == f"{min(equal)}-2"


def test_a_photo_keeps_its_id_when_the_album_grows_and_an_equal_one_leaves(root: Path) -> None:
    before = released_ids(root)
    plain = min(name for id_, name in before.items() if "car-2010-05-01-jpg" in id_)
    path = next(event["path"] for event in trace(root, plain)["events"] if "path" in event)
    (root / "photos" / path.partition("/photos/")[2]).unlink()
    album(root / "photos" / "AAA", 1)
    publish(root, "release.per_class=3", "release.version=2.0.0")
    after = released_ids(root)
    assert before.items() <= after.items()
    assert len(after) == len(before) + 6


def test_a_published_id_withdraws_and_traces_as_the_own_one(root: Path) -> None:
    release = Release.open(root)
    name, gone = release.table["id"].to_pylist()[:2]
    assert trace(root, name) == trace(root, next(id_ for id_, of in released_ids(root).items() if of == name))
    assert trace(root, name)["ended"] == "It is in the release."
    (root / "list.csv").write_text(f"id\n{name}\n")
    for changes in (("release.withdrawn=list.csv",), ("filter.withdrawn=list.csv",)):
        after = publish(root, "release.per_class=3", "release.version=1.1.0", *changes)
        assert name not in after.table["id"].to_pylist()
        assert gone in after.table["id"].to_pylist()
    withdraw_photos(root, [gone])
    after = publish(root, "release.per_class=3", "release.version=1.2.0")
    assert after.withdrawn([name, gone]) == [gone]
    assert gone not in everything(after.path)


def test_a_release_with_ids_of_paths_goes_on_with_them_or_is_refused(root: Path, tmp_path: Path) -> None:
    old = publish(root, "release.per_class=3", "release.ids=path").path
    shutil.copytree(old, tmp_path / "old")
    changes = ("release.per_class=3", f"release.previous={tmp_path / 'old'}", "release.version=1.0.1")
    with pytest.raises(BadConfig, match="made from paths, such as .*Set release.ids: path to go on with them"):
        publish(root, *changes)
    publish(root, *changes, "release.ids=path")
