"""Versions of a release: which new images may join, what each bucket consists of, and what decides the level."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.clear_layouts import PROVENANCE
from support.console import inside
from support.helpers import release_of

from driftline.curate.core.atomic_io import read_json
from driftline.curate.core.errors import BadConfig
from driftline.curate.release import Release
from driftline.curate.release.changes import (
    changes_markdown,
    changes_since,
    check_version,
    compare_releases,
    comparison_text,
)
from driftline.curate.release.selection import Former, all_splits, split_groups
from driftline.curate.release.settings import ReleaseSettings
from driftline.pipelines.commands.release import compare

BUCKETS = [{"index": b, "name": str(2010 + b), "start": None, "end": None} for b in (1, 2)]
CLASSES = ["bus", "car"]


def photos(n: int = 4) -> list[dict[str, Any]]:
    return [
        {"id": f"{b}-{c}-{i}", "bucket": b, "concept": c, "user": f"{b}{c}{i}", "uploaded": 100 * b + i,
         "licence": "CC0", "licence_url": "u", "source_sha256": "0"}
        for b in (1, 2) for c in CLASSES for i in range(n)
    ]  # fmt: skip


def made(folder: Path, rows: list[dict[str, Any]] | None = None, scale: float = 1.0, splits: int = 2) -> Release:
    rows = photos() if rows is None else rows
    images = {r["id"]: (r["id"].encode(), "jpg") for r in rows}
    vectors = (scale * np.arange(len(rows) * 2, dtype=np.float16)).reshape(-1, 2)
    return release_of(rows, images, vectors, BUCKETS, CLASSES, PROVENANCE, folder, ReleaseSettings(splits=splits))


class TestJoining:
    def test_a_new_photo_of_a_known_uploader_takes_the_group_and_the_sides(self, tmp_path: Path) -> None:
        former = Former.of(made(tmp_path / "a"))
        old = next(row for row in former.rows.values() if row["split_0"] == "test")
        assert old["user"] is None, "the run knows the uploader; the release does not say it"
        user = next(row["user"] for row in photos() if row["id"] == old["id"])
        new = {"id": "0-new", "bucket": 2, "concept": "bus", "user": user}
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
            {"id": "copy-of-one", "user": "1bus1"},  # a near-duplicate of 1-bus-0, by another uploader who is known
            {"id": "copy-of-new", "user": "nobody"},
            {"id": "free", "user": None},
        ]
        copies = {row["id"]: row["id"] for row in photos()}
        copies |= {"copy-of-one": "1-bus-0", "copy-of-new": "x", "free": "x"}
        assert former.bridges([*photos(), *news], copies) == {"copy-of-one"}

    def test_a_chain_of_new_photos_links_groups_too(self, tmp_path: Path) -> None:
        former = Former.of(made(tmp_path / "a"))
        news = [{"id": "n1", "user": "1bus0"}, {"id": "n2", "user": "1bus1"}]
        copies = {row["id"]: row["id"] for row in photos()} | {"n1": "both", "n2": "both"}
        assert former.bridges([*photos(), *news], copies) == {"n2"}

    def test_old_classes_keep_their_labels(self, tmp_path: Path) -> None:
        former = Former.of(made(tmp_path / "a"))
        assert former.classes(["ambulance", "bus", "car"]) == ["bus", "car", "ambulance"]
        assert former.classes(["ambulance", "car"]) == ["car", "ambulance"]


class TestIdentity:
    def test_it_does_not_depend_on_the_order_of_rows(self, tmp_path: Path) -> None:
        release = made(tmp_path / "a")
        order = np.random.default_rng(0).permutation(len(release.table))
        known = release.identity()
        pq.write_table(release.table.take(order), release.path / "metadata.parquet")
        np.save(release.path / "features" / "clip.npy", release.features("clip")[order])
        assert Release.open(release.path).identity() == known

    def test_features_without_a_file_are_not_part_of_it(self, tmp_path: Path) -> None:
        release = made(tmp_path / "a")
        known = release.identity()
        (release.path / "features" / "clip.npy").unlink()
        others = [bucket | {"features": {}} for bucket in known["buckets"]]
        assert Release.open(release.path).identity() == known | {"buckets": others}

    def test_it_is_what_the_file_says(self, tmp_path: Path) -> None:
        release = made(tmp_path / "a")
        assert release.identity() == read_json(release.path / "BUCKETS.json")


class TestComparison:
    def compared(self, a: Release, b: Release) -> dict[str, Any]:
        return {entry["bucket"]: entry for entry in compare_releases(a, b)["buckets"]}

    def test_equal_releases_share_all_scores(self, tmp_path: Path) -> None:
        found = compare_releases(made(tmp_path / "a"), made(tmp_path / "b"))
        said = [(e["compare"], e["because"], e["features"]) for e in found["buckets"]]
        assert said == [("all", [], {"clip": True})] * 2
        assert found["comparable"] == found["learned_up_to"] == ["2011", "2012"]

    def test_each_difference_is_a_reason(self, tmp_path: Path) -> None:
        a = made(tmp_path / "a", splits=1)
        rows = a.table.to_pylist()
        test = next(r for r in rows if r["bucket"] == 1 and r["split_0"] == "test")
        train = next(r for r in rows if r["bucket"] == 2 and r["split_0"] == "train")
        found = self.compared(a, without(a, tmp_path / "b", test["id"]))
        assert found["2011"]["compare"] == "none"
        assert found["2011"]["because"] == ["other test images"]
        assert found["2012"]["compare"] == "all"
        found = self.compared(a, without(a, tmp_path / "c", train["id"]))
        assert found["2012"]["compare"] == "tests"
        assert found["2012"]["because"] == ["other training images"]

    def test_learners_are_comparable_up_to_the_first_bucket_that_differs(self, tmp_path: Path) -> None:
        a = made(tmp_path / "a")
        first = next(r["id"] for r in a.table.to_pylist() if r["bucket"] == 1)
        found = compare_releases(a, without(a, tmp_path / "b", first))
        assert found["learned_up_to"] == []
        assert "2012" in found["comparable"]
        assert "trained up to: none" in comparison_text(found)

    def test_other_vectors_leave_the_images_comparable_by_no_score_on_them(self, tmp_path: Path) -> None:
        found = self.compared(made(tmp_path / "a"), made(tmp_path / "b", scale=2.0))
        assert {e["compare"] for e in found.values()} == {"none"}
        assert found["2011"]["because"] == ["other features clip"]

    def test_other_classes_make_every_score_another_question(self, tmp_path: Path) -> None:
        a, b = made(tmp_path / "a"), made(tmp_path / "b")
        more = Release(b.path, {**b.facts, "classes": [*b.classes, "dog"]}, b.table)
        found = compare_releases(a, more)
        assert found["comparable"] == []
        assert found["buckets"][0]["because"] == ["other classes"]

    def test_a_bucket_of_one_release_and_a_moved_border_are_named(self, tmp_path: Path) -> None:
        a, b = (made(tmp_path / n) for n in "ab")
        for release, ends in ((a, ("2012", "2013")), (b, ("2012", "2014"))):
            for bucket, start, end in zip(release.facts["buckets"], ("2011", "2012"), ends, strict=True):
                bucket |= {"start": start, "end": end}
        b.facts["buckets"].append({"index": 3, "name": "2014", "start": "2014", "end": "2015"})
        found = self.compared(a, b)
        assert found["2012"]["because"] == ["another end"]
        assert (found["2014"]["compare"], found["2014"]["because"]) == ("none", ["only B has this bucket"])

    def test_the_command_prints_text_and_json_and_fails_if_nothing_is_comparable(self, tmp_path: Path) -> None:
        made(tmp_path / "a"), made(tmp_path / "b"), made(tmp_path / "c", photos(5))
        said = inside("compare", tmp_path / "a", tmp_path / "b").stdout
        assert "  2011  all scores\n" in said
        assert "Learners may be compared if trained up to: 2012" in said
        done = inside("compare", tmp_path / "a", tmp_path / "c", "--json")
        assert (done.returncode, json.loads(done.stdout)["comparable"]) == (1, [])
        assert "No score on A may be compared with one on B." in done.stderr
        with pytest.raises(BadConfig, match=r"is a release, and .* is none\. Expected two releases, or two result"):
            compare(tmp_path / "a", tmp_path)


def without(release: Release, folder: Path, id_: str) -> Release:
    """A copy of a release without one image."""
    shutil.copytree(release.path, folder)
    keep = np.array([i != id_ for i in release.table["id"].to_pylist()])
    np.save(folder / "features" / "clip.npy", release.features("clip")[keep])
    return Release(folder, release.facts, release.table.filter(keep))


# ---- CHANGES and the level of a version follow from every part of a release: nothing that changed is only a card


Change = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """16 images, two splits, features, and two unlabelled images."""
    release = made(tmp_path_factory.mktemp("changes") / "a")
    listed = {"id": ["x", "y"], "bucket": pa.array([1, 2], pa.int32()), "source_sha256": ["0" * 64, "1" * 64]}
    pq.write_table(pa.table(listed), release.path / "unlabelled.parquet")
    return release


def parts_of(release: Release) -> dict[str, Any]:
    return {
        "rows": release.table.to_pylist(),
        "classes": list(CLASSES),
        "splits": {name: release.table[name].to_pylist() for name in release.facts["splits"]},
        "vectors": {"clip": np.array(release.features("clip"))},
        "unlabelled": [("x", 1, "0" * 64), ("y", 2, "1" * 64)],
    }


def changed(before: Release, change: Change, withdrawn: tuple[str, ...] = ()) -> dict[str, Any]:
    parts = parts_of(before)
    change(parts)
    return changes_since(before, withdrawn=withdrawn, **parts)


def first(**values: Any) -> Change:
    return lambda parts: parts["rows"][0].update(values)


def vector(parts: dict[str, Any]) -> None:
    parts["vectors"]["clip"][3, 1] += 1


def without_image(parts: dict[str, Any]) -> None:
    parts["rows"].pop(0)
    parts["splits"] = {name: sides[1:] for name, sides in parts["splits"].items()}
    parts["vectors"]["clip"] = parts["vectors"]["clip"][1:]


def side(parts: dict[str, Any]) -> None:
    sides = parts["splits"]["split_1"]
    sides[0] = "train" if sides[0] == "test" else "test"


EVERY_PART: list[tuple[Change, str, str]] = [
    (first(sha256="0" * 64), "major", "images, other content | 1"),
    (first(uploaded=7), "major", "images, other upload time | 1"),
    (first(bucket=2), "major", "images, other bucket | 1"),
    (first(**{"class": "car"}), "major", "images, other class | 1"),
    (first(licence="ARR"), "patch", "images, other licence | 1"),
    (first(licence_url="v"), "patch", "images, other licence | 1"),
    (side, "major", "images, other split | 1"),
    (lambda parts: parts["splits"].pop("split_1"), "major", "splits, removed | 1"),
    (lambda parts: parts["splits"].update(split_2=parts["splits"]["split_0"]), "minor", "splits, added | 1"),
    (vector, "major", "features, changed | 1"),
    (lambda parts: parts["vectors"].pop("clip"), "major", "features, removed | 1"),
    (lambda parts: parts["vectors"].update(b=np.zeros((16, 1), np.float16)), "minor", "features, added | 1"),
    (lambda parts: parts["unlabelled"].pop(), "minor", "unlabelled images, removed | 1"),
    (lambda parts: parts["unlabelled"].append(("z", 1, "2" * 64)), "minor", "unlabelled images, added | 1"),
    (lambda parts: parts["unlabelled"].append(("y", 2, "3" * 64)), "minor", "unlabelled images, changed | 1"),
    (lambda parts: parts.update(unlabelled=[]), "minor", "unlabelled images, removed | 2"),
    (without_image, "minor", "images, removed | 1"),
    (lambda parts: parts["classes"].reverse(), "major", "classes, in another order | 2"),
]


@pytest.mark.parametrize(("change", "level", "line"), EVERY_PART, ids=[line for *_, line in EVERY_PART])
def test_every_part_that_changed_is_named_and_decides_the_level(before, change, level, line):
    found = changed(before, change)
    assert found["level"] == level
    text = changes_markdown(found, "9.0.0")
    assert f"| {line} |" in text


def test_the_order_of_rows_is_no_change(before: Release) -> None:
    def reversed_rows(parts: dict[str, Any]) -> None:
        parts["rows"].reverse()
        parts["splits"] = {name: sides[::-1] for name, sides in parts["splits"].items()}
        parts["vectors"]["clip"] = parts["vectors"]["clip"][::-1]
        parts["unlabelled"].reverse()

    assert changes_markdown(changed(before, reversed_rows), "1.0.1").endswith("|---|---|\n")


def test_a_withdrawn_unlabelled_image_is_a_patch(before: Release) -> None:
    found = changed(before, lambda parts: parts["unlabelled"].pop(), ("y",))
    assert found["level"] == "patch"
    assert "| unlabelled images, withdrawn | 1 |" in changes_markdown(found, "1.0.1")


def test_the_version_must_agree_with_the_parts(before: Release) -> None:
    with pytest.raises(BadConfig, match=r"the change is major.*at least 2\.0\.0.*vectors"):
        check_version("1.0.1", changed(before, vector))
