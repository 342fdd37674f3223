"""Releases that append: old tars byte for byte, tombstones that every reader honours, and nothing lost by a crash."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from support.helpers import photo_config

from driftline.curate.core.atomic_io import read_json, sha256_bytes, write_text
from driftline.curate.core.errors import BadConfig, DriftlineError, IntegrityError
from driftline.curate.core.parsing import rows_of
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.seeding import rng_for
from driftline.curate.export import EXPORTS
from driftline.curate.images.shards import read_tar
from driftline.curate.metadata.released_ids import mapped, released_ids
from driftline.curate.pretrain.pool import open_pool
from driftline.curate.release import Release
from driftline.curate.release.versions.tombstones import FILE, id_of
from driftline.curate.retrieval.vector_store import vectors_of
from driftline.pipelines.cli.runs import run as command
from driftline.pipelines.config.loader import load
from driftline.pipelines.demo.draw import photo
from driftline.pipelines.reporting.trace import trace
from driftline.pipelines.run.runner import run
from driftline.pipelines.run.stage import Context
from driftline.pipelines.run.state import folder_of
from driftline.stream_builder.builders.release import from_release, unlabelled_images

CONFIG = photo_config("  per_class: 20\n  overlap: allow")
SETS = ("release.per_class=3", "release.splits=2", "release.unlabelled=images")


def add_photos(folder: Path, year: int, n: int, first: int = 0) -> None:
    for thing in ("car", "bus"):
        (folder / "photos" / thing).mkdir(parents=True, exist_ok=True)
        for i in range(first, first + n):
            picture = photo([thing], 0.2, rng_for(year, thing, i))
            picture.save(folder / "photos" / thing / f"{year}-05-0{i + 1}.jpg")


def publish(folder: Path, *changes: str) -> Release:
    run(Context(folder, load(folder / "driftline.yaml", (*SETS, *changes)), RunLog(quiet=True)))
    release = Release.open(folder)
    release.verify()
    return release


def append(folder: Path, version: str, *changes: str) -> Release:
    """Publish onto the release of this run, which is copied beside it."""
    before = folder.parent / f"before-{version}"
    if not before.is_dir():
        shutil.copytree(Release.open(folder).path, before)
    return publish(folder, f"release.previous={before}", "release.append=true", f"release.version={version}", *changes)


def tars_of(release: Release) -> dict[str, str]:
    return {name: digest for name, digest in release.checksums().items() if name.endswith(".tar")}


def every_file(release: Release) -> dict[str, bytes]:
    files = (p for p in release.path.rglob("*") if p.is_file())
    return {p.relative_to(release.path).as_posix(): p.read_bytes() for p in files}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four cars and four buses of each of two years, three of them labelled: version 1.0.0."""
    out = tmp_path_factory.mktemp("appended") / "run"
    for year in (2010, 2011):
        add_photos(out, year, 4)
    write_text(out / "driftline.yaml", CONFIG)
    publish(out)
    return out


@pytest.fixture
def folder(first: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(first, tmp_path / "run"))


def test_a_new_year_leaves_the_old_tars_byte_for_byte(folder: Path) -> None:
    before = Release.open(folder)
    old, was = tars_of(before), {name: (before.path / name).read_bytes() for name in tars_of(before)}
    rows, identity = before.table.to_pylist(), before.identity()
    add_photos(folder, 2012, 4)
    after = append(folder, "1.1.0")
    assert {name: (after.path / name).read_bytes() for name in old} == was
    assert sorted(set(tars_of(after)) - set(old)) == ["shards/bucket_02-00000.tar", "unlabelled/bucket_02-00000.tar"]
    assert [row for row in after.table.to_pylist() if row["bucket"] < 2] == rows
    assert [i for i, _ in after.images()] == after.table["id"].to_pylist()
    assert after.identity()["buckets"][:2] == identity["buckets"]
    assert not (after.path / FILE).exists()
    said = (after.path / "CHANGES.md").read_text()
    assert "- 6 images added: " in said
    assert "- 4 tars are those of the version before, byte for byte\n- new tars: shards/bucket_02-00000.tar" in said


def test_vectors_and_groups_follow_the_rows(folder: Path) -> None:
    add_photos(folder, 2010, 2, 4)
    after = append(folder, "1.1.0", "release.per_class=5")
    ids = after.table["id"].to_pylist()
    own = {released: id_ for id_, released in released_ids(folder).items()}
    assert np.array_equal(after.features("clip"), vectors_of(folder_of(folder, "embed"), mapped(ids, own)))
    assert len(set(zip(after.table["shard"].to_pylist(), ids, strict=True))) == len(ids) == 18


def test_more_images_of_an_old_bucket_go_into_its_next_tar_and_old_ones_keep_their_sides(folder: Path) -> None:
    before = Release.open(folder)
    sides = {id_: tuple(rest) for id_, *rest in rows_of(before.table, "id", "split_0", "split_1", "shard", "group")}
    old = tars_of(before)
    add_photos(folder, 2010, 3, 4)
    after = append(folder, "1.1.0", "release.per_class=6")
    now = {id_: tuple(rest) for id_, *rest in rows_of(after.table, "id", "split_0", "split_1", "shard", "group")}
    assert {id_: now[id_] for id_ in sides} == sides
    assert {shard for id_, (*_, shard, _) in now.items() if id_ not in sides} == {
        "bucket_00-00001.tar", "bucket_01-00001.tar",
    }  # fmt: skip
    assert {name: tars_of(after)[name] for name in old} == old
    stones = after.tombstones()
    assert {(s.tar.partition("/")[0], s.reason, s.since) for s in stones} == {("unlabelled", "labelled", "1.1.0")}


def croissant_ids(release: Release) -> list[str]:
    """The ids of the images that mlcroissant reads."""
    import mlcroissant

    records = mlcroissant.Dataset(jsonld=str(release.path / "croissant.json")).records("images")
    return [id_.decode() if isinstance(id_, bytes) else id_ for id_ in (record["images/id"] for record in records)]


@pytest.mark.usefixtures("croissant_cache")
def test_withdrawn_images_become_tombstones_that_every_export_and_reader_honours(folder: Path, tmp_path: Path) -> None:
    """Also Case 42: a withdrawn photo in an old tar, whose checksum stays in the Croissant of what has grown."""
    before = Release.open(folder)
    assert not read_json(before.path / "croissant.json")["isLiveDataset"]
    gone, old = before.table["id"][0].as_py(), tars_of(before)
    hidden = pq.read_table(before.path / "unlabelled.parquet")["id"][0].as_py()
    write_text(folder / "withdrawn.csv", f"id\n{gone}\n{hidden}\n")
    after = append(folder, "1.1.0", "release.withdrawn=withdrawn.csv", "release.author=A Lab <a@example.org>")
    dead = {(s.id, s.reason) for s in after.tombstones()}
    assert {(gone, "withdrawn"), (hidden, "withdrawn")} <= dead
    assert {name: tars_of(after)[name] for name in old} == old
    assert gone not in dict(after.images())
    pools = [open_pool(after.path, bucket, include_tests=True) for bucket in (0, 1)]
    seen = [sha256_bytes(data) for pool in pools for _, data in pool.images()]
    raw = {id_of(n): sha256_bytes(d) for t in old for n, d in read_tar(before.path / t) if n.endswith(".jpg")}
    assert not {raw[gone], raw[hidden]} & set(seen)
    assert sum(map(len, unlabelled_images(after, 8, False).values())) == after.facts["unlabelled"]
    from_release(after, "images:8")
    document = read_json(after.path / "croissant.json")
    assert document["isLiveDataset"]
    assert document["creator"] == {"@type": "sc:Organization", "name": "A Lab", "email": "a@example.org"}
    digests = {node["@id"]: node.get("sha256") for node in document["distribution"]}
    assert {digests[name] == digest for name, digest in old.items() if name.startswith("shards/")} == {True}
    assert [node["prov:label"] for node in document["prov:wasDerivedFrom"]] == ["folder", "unnamed 1.0.0"]
    assert len(croissant_ids(after)) == len(after.table) == len(before.table) - 1
    assert set(croissant_ids(after)) == set(after.table["id"].to_pylist())
    for name in EXPORTS:
        assert EXPORTS[name](after, tmp_path / name)["images"] == len(after.table)
        content = b"".join(p.read_bytes() for p in (tmp_path / name).rglob("*") if p.suffix in (".tar", ".parquet"))
        assert dict(before.images())[gone] not in content
    exported = Release.open(tmp_path / "webdataset")
    exported.verify()
    assert exported.tombstones() == []
    assert exported.identity() == after.identity()


def test_purge_writes_only_the_tars_of_withdrawn_images_again_and_names_them(folder: Path, tmp_path: Path) -> None:
    before = Release.open(folder)
    gone, old = before.table["id"][0].as_py(), tars_of(before)
    write_text(folder / "withdrawn.csv", f"id\n{gone}\n")
    append(folder, "1.1.0", "release.withdrawn=withdrawn.csv")
    before_2 = Path(shutil.copytree(Release.open(folder).path, tmp_path / "before-2"))
    again = ("release.version=1.1.1", "release.withdrawn=withdrawn.csv", "release.append=true", "release.purge=true")
    command(folder, sets=[*SETS, *again, f"release.previous={before_2}"], workers="1")
    after = Release.open(folder)
    after.verify()
    assert after.tombstones() == [s for s in after.tombstones() if s.reason != "withdrawn"]
    changed = [name for name, digest in old.items() if tars_of(after).get(name) != digest]
    assert changed == ["shards/bucket_00-00000.tar"]
    assert [entry["tar"] for entry in after.facts["changes"]["tars"]["rewritten"]] == changed
    assert f"- {changed[0]} was written again, without 1 withdrawn images" in (after.path / "CHANGES.md").read_text()
    assert gone not in {id_of(name) for name, _ in read_tar(after.path / changed[0])}


def test_an_image_that_left_the_collection_is_a_tombstone_with_its_reason(folder: Path) -> None:
    before = Release.open(folder)
    old, gone = tars_of(before), before.table["id"][0].as_py()
    path = next(event["path"] for event in trace(folder, gone)["events"] if "path" in event)
    (folder / "photos" / path.partition("/photos/")[2]).unlink()
    after = append(folder, "1.1.0")
    assert {name: tars_of(after)[name] for name in old} == old
    assert (gone, "not in this run") in {(s.id, s.reason) for s in after.tombstones()}
    assert f"- 1 images removed: {gone}. Why: not in this run (1)" in (after.path / "CHANGES.md").read_text()


@pytest.mark.parametrize("number", [1, 3, 6])
def test_a_crash_or_a_full_disk_in_the_middle_changes_no_byte(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """number: of the file at whose end the process dies; at the next attempt, the disk is full there."""
    gone = Release.open(folder).table["id"][0].as_py()
    write_text(folder / "withdrawn.csv", f"id\n{gone}\n")
    whole = Path(shutil.copytree(folder, folder.parent / "whole" / "run"))
    sets = ("release.withdrawn=withdrawn.csv", "release.purge=true")
    expected = (append(whole, "1.1.0", *sets).path / "SHA256SUMS").read_bytes()
    real, calls = os.fsync, []

    def dies(handle: int) -> None:
        if (folder / "stages" / "09_publish.next" / "release").is_dir():
            calls.append(1)
        if len(calls) == number:
            raise KeyboardInterrupt
        if len(calls) == 3 * number:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", dies)
    with pytest.raises(KeyboardInterrupt):
        append(folder, "1.1.0", *sets)
    with pytest.raises(DriftlineError, match=r"The disk is full: .*finished work is kept"):
        append(folder, "1.1.0", *sets)
    monkeypatch.undo()
    assert (append(folder, "1.1.0", *sets).path / "SHA256SUMS").read_bytes() == expected


def test_what_cannot_be_appended_to_is_refused(folder: Path) -> None:
    own = Release.open(folder).path
    with pytest.raises(BadConfig, match=r"release\.previous is .*, which this run writes\. Expected a copy"):
        publish(folder, f"release.previous={own}", "release.append=true")
    with pytest.raises(BadConfig, match=r"release\.append is true and release\.previous is not set"):
        publish(folder, "release.append=true")
    with pytest.raises(BadConfig, match=r"release\.purge is true and release\.append is false"):
        publish(folder, "release.purge=true")
    before = Path(shutil.copytree(own, folder.parent / "before-1.1.0"))
    with pytest.raises(BadConfig, match=r"Expected images: an appended release keeps all tars"):
        append(folder, "1.1.0", "release.unlabelled=index")
    tar = before / "shards" / "bucket_00-00000.tar"
    tar.write_bytes(tar.read_bytes()[:-1] + b"x")
    with pytest.raises(IntegrityError, match=r"bucket_00-00000\.tar does not match its checksum"):
        append(folder, "1.1.0")
