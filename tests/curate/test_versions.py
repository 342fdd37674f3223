"""Versions of a release: which new images may join, what stays in its tar, and what each bucket consists of."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from support.helpers import ImagesInMemory, release_of

from curate.core.atomic_io import read_json
from curate.core.errors import BadConfig, BadInput, IntegrityError
from curate.release import Release
from curate.release.packing import Packed, pack
from curate.release.selection import all_splits, split_groups
from curate.release.settings import ReleaseSettings
from curate.release.versions.appending import Former, append_tars, labelled
from curate.release.versions.tombstones import FILE

BUCKETS = [{"index": b, "name": str(2010 + b), "start": None, "end": None} for b in (1, 2)]
CLASSES = ["bus", "car"]
PROVENANCE: dict[str, Any] = {
    "driftline": "0", "notice": "", "source": "folder", "seed": 0, "encoder": {"model": "m", "fingerprint": "f"},
    "validation": {"method": "catalogue", "workers": 1, "agree": 1, "rule": "exact"},
    "prompts": {}, "counts": {}, "judgement": None,
}  # fmt: skip


def photos(n: int = 4) -> list[dict[str, Any]]:
    return [
        {"id": f"{b}-{c}-{i}", "bucket": b, "concept": c, "user": f"{b}{c}{i}", "uploaded": i, "licence": "CC0",
         "source_sha256": "0"}
        for b in (1, 2) for c in CLASSES for i in range(n)
    ]  # fmt: skip


def made(folder: Path, rows: list[dict[str, Any]] | None = None, scale: float = 1.0) -> Release:
    rows = photos() if rows is None else rows
    images = {r["id"]: (r["id"].encode(), "jpg") for r in rows}
    vectors = (scale * np.arange(len(rows) * 2, dtype=np.float16)).reshape(-1, 2)
    return release_of(rows, images, vectors, BUCKETS, CLASSES, PROVENANCE, folder, ReleaseSettings(splits=2))


class TestJoining:
    def test_a_new_photo_of_a_known_uploader_takes_the_group_and_the_sides(self, tmp_path: Path) -> None:
        former = Former.of(made(tmp_path / "a"))
        old = next(row for row in former.rows.values() if row["split_0"] == "test")
        new = {"id": "0-new", "bucket": 2, "concept": "bus", "user": old["user"]}
        rows = [*photos(), new]
        groups = former.groups(rows, split_groups(rows))
        sides = all_splits(rows, groups, ReleaseSettings(splits=3), 0, lambda split: former.sides(rows, split))
        assert groups[-1] == old["group"]
        assert (sides["split_0"][-1], sides["split_1"][-1]) == (old["split_0"], old["split_1"])
        assert sides["split_0"][:-1] == [former.rows[row["id"]]["split_0"] for row in photos()]
        assert set(sides["split_2"]) == {"train", "test"}, "a split that is new is drawn"

    def test_a_new_photo_that_links_two_old_groups_is_not_published(self, tmp_path: Path) -> None:
        former = Former.of(made(tmp_path / "a"))
        news = [
            {"id": "copy-of-one", "user": "1bus1"},  # a near copy of 1-bus-0, by another uploader who is known
            {"id": "copy-of-new", "user": "nobody"},
            {"id": "free", "user": None},
        ]
        copies = {row["id"]: row["id"] for row in photos()} | {
            "copy-of-one": "1-bus-0",
            "copy-of-new": "x",
            "free": "x",
        }
        assert former.bridges([*photos(), *news], copies) == {"copy-of-one"}

    def test_a_chain_of_new_photos_links_groups_too(self, tmp_path: Path) -> None:
        former = Former.of(made(tmp_path / "a"))
        news = [{"id": "n1", "user": "1bus0"}, {"id": "n2", "user": "1bus1"}]
        copies = {row["id"]: row["id"] for row in photos()} | {"n1": "both", "n2": "both"}
        assert former.bridges([*photos(), *news], copies) == {"n2"}

    def test_old_classes_keep_their_labels(self, tmp_path: Path) -> None:
        former = Former.of(made(tmp_path / "a"))
        assert former.classes(["ambulance", "bus", "car"]) == ["bus", "car", "ambulance"]
        with pytest.raises(BadConfig, match=r"The class 'car' of unnamed 1\.0\.0 is not among retrieve\.concepts"):
            former.classes(["bus"])

    def test_a_release_without_groups_is_refused(self, tmp_path: Path) -> None:
        release = made(tmp_path / "a")
        old = Release(release.path, release.facts, release.table.drop_columns(["group"]))
        with pytest.raises(BadConfig, match=r"is a release of driftline 0\.1.*Publish it again without"):
            Former.of(old)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"class": "car", "label": 1}, "relabelled: bus → car"),
        ({"bucket": 2}, "other bucket: 1 → 2"),
        ({"source_sha256": "1"}, "other bytes"),
        ({"licence": "ARR"}, "other licence: CC0 → ARR"),
        ({"title": "another"}, ""),
    ],
)
def test_an_image_that_changed_is_written_again(tmp_path: Path, change: Mapping[str, Any], reason: str) -> None:
    release = made(tmp_path / "a")
    old = labelled(release)
    rows = [{**row, **(change if row["id"] == "1-bus-0" else {})} for row in release.table.to_pylist()]
    images = ImagesInMemory({row["id"]: (row["id"].encode(), "jpg") for row in rows})

    def pack_new(new: list[dict[str, Any]], first: Mapping[int, int]) -> Packed:
        assert dict(first) == {1: 1, 2: 1}
        return pack(new, images, tmp_path / "b" / "shards", tmp_path / "r", 9, False, first=first)  # type: ignore[arg-type]

    result = append_tars(rows, old, release, "shards", tmp_path / "b", pack_new, "2.0.0", {})
    place = {row["id"]: row["shard"] for row in result.packed.rows}
    if not reason:
        assert (result.tombstones, result.tars["new"]) == ([], [])
        assert next(row for row in result.packed.rows if row["id"] == "1-bus-0")["title"] is None, (
            "its row is as it was"
        )
        return
    assert [(s.tar, s.id, s.since, s.reason) for s in result.tombstones] == [
        ("shards/bucket_01-00000.tar", "1-bus-0", "2.0.0", reason)
    ]
    assert place["1-bus-0"] == f"bucket_{change.get('bucket', 1):02d}-00001.tar"
    assert set(place) == set(old)


class TestIdentity:
    def test_it_does_not_depend_on_the_order_of_rows(self, tmp_path: Path) -> None:
        release = made(tmp_path / "a")
        order = np.random.default_rng(0).permutation(len(release.table))
        known = release.identity()
        pq.write_table(release.table.take(order), release.path / "metadata.parquet")
        np.save(release.path / "features" / "clip.npy", release.features("clip")[order])
        assert Release.open(release.path).identity() == known

    def test_other_vectors_are_another_identity_of_features_only(self, tmp_path: Path) -> None:
        a, b = (made(tmp_path / n, scale=s).identity()["buckets"] for n, s in (("a", 1.0), ("b", 2.0)))
        assert [x["splits"] for x in a] == [x["splits"] for x in b]
        assert all(x["features"] != y["features"] for x, y in zip(a, b, strict=True))

    def test_a_manifest_of_another_release_is_refused(self, tmp_path: Path) -> None:
        a, b = made(tmp_path / "a"), made(tmp_path / "b", photos(5))
        shutil.copy(b.path / "BUCKETS.json", a.path / "BUCKETS.json")
        with pytest.raises(IntegrityError, match=r"BUCKETS\.json does not describe the images of this release"):
            a.identity()

    def test_a_release_without_manifest_has_one_all_the_same(self, tmp_path: Path) -> None:
        release = made(tmp_path / "a")
        known = read_json(release.path / "BUCKETS.json")
        (release.path / "BUCKETS.json").unlink()
        assert release.identity() == known


@pytest.mark.parametrize("text", ["", "tar,id\nx,y\n", "tar,id,since,reason\n../x,y,1,z\n", "tar,id,since,reason\nx\n"])
def test_a_damaged_list_of_tombstones_is_named(tmp_path: Path, text: str) -> None:
    release = made(tmp_path / "a")
    (release.path / FILE).write_text(text)
    with pytest.raises((BadInput, IntegrityError), match=FILE):
        release.tombstones()
