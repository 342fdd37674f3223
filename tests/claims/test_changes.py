"""CHANGES and the level of a version follow from every part of a release: nothing that changed is only a card."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.clear_layouts import PROVENANCE
from support.helpers import release_of

from driftline.curate.core.errors import BadConfig
from driftline.curate.release import Release
from driftline.curate.release.changes import (
    changes_markdown,
    changes_since,
    check_version,
    compare_releases,
    comparison_text,
)
from driftline.curate.release.settings import ReleaseSettings

BUCKETS = [{"index": b, "name": str(2010 + b), "start": None, "end": None} for b in (1, 2)]
CLASSES = ["bus", "car"]
Change = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """16 images, two splits, features, and two unlabelled images."""
    rows = [
        {"id": f"{b}-{c}-{i}", "bucket": b, "concept": c, "user": f"{b}{c}{i}", "uploaded": 100 * b + i,
         "licence": "CC0", "licence_url": "u"}
        for b in (1, 2) for c in CLASSES for i in range(4)
    ]  # fmt: skip
    images = {row["id"]: (str(row["id"]).encode(), "jpg") for row in rows}
    folder = tmp_path_factory.mktemp("changes") / "a"
    vectors = np.arange(32, dtype=np.float16).reshape(-1, 2)
    release = release_of(rows, images, vectors, BUCKETS, CLASSES, PROVENANCE, folder, ReleaseSettings(splits=2))
    listed = {"id": ["x", "y"], "bucket": pa.array([1, 2], pa.int32()), "source_sha256": ["0" * 64, "1" * 64]}
    pq.write_table(pa.table(listed), folder / "unlabelled.parquet")
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


def test_compare_names_buckets_whose_unlabelled_images_differ(before: Release, tmp_path: Path) -> None:
    other = Release.open(shutil.copytree(before.path, tmp_path / "b"))
    assert "nlabelled" not in comparison_text(compare_releases(before, other))
    table = pa.table({"id": ["x", "z"], "bucket": pa.array([1, 2], pa.int32()), "source_sha256": ["0" * 64, "2" * 64]})
    pq.write_table(table, other.path / "unlabelled.parquet")
    found = compare_releases(before, other)
    assert "2012  all scores: other unlabelled images" in comparison_text(found)
    assert found["comparable"] == ["2011", "2012"]
