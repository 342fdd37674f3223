"""Auditing: what is planted is found."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.clear_layouts import PROVENANCE
from support.helpers import release_of
from support.pages import chromium_browser, violations

from driftline.curate.core.atomic_io import sha256_bytes
from driftline.curate.core.errors import MissingFile
from driftline.curate.core.seeding import rng_for
from driftline.curate.release import Release
from driftline.curate.release.drift import drift
from driftline.curate.release.settings import ReleaseSettings
from driftline.pipelines.demo.draw import jpeg, photo
from driftline.pipelines.reporting.audit import audit, audit_release, prepared, uploaders
from driftline.pipelines.reporting.audit_page import Shown, lines, page, pictures
from driftline.stream_builder.stream import Split, Step, Stream

BUCKETS = [{"index": b, "name": str(b), "start": None, "end": None} for b in (1, 2)]


def made(folder: Path, world: int = 0) -> Release:
    """Two buckets of four cars and four buses; one car of bucket 2 is a smaller copy of one of bucket 1."""
    rows, images, vectors = [], {}, []
    for bucket in (1, 2):
        for label, thing in enumerate(("bus", "car")):
            for i in range(4):
                picture = photo([thing], 0.2, rng_for(world, bucket, thing, i))
                if (bucket, thing, i) == (2, "car", 0):
                    picture = photo([thing], 0.2, rng_for(world, 1, "car", 0)).resize((60, 60))
                data = jpeg(picture)
                id_ = f"{bucket}{thing}{i}"
                images[id_] = (data, "jpg")
                rows.append(
                    {"id": id_, "bucket": bucket, "concept": thing, "user": f"u{i}", "uploaded": 10 * bucket + i,
                     "sha256": sha256_bytes(data), "title": "<script>"}
                )  # fmt: skip
                vectors.append(np.eye(2)[label] + 0.01 * i)
    matrix = np.array(vectors, np.float16)
    rules = ReleaseSettings(splits=2, columns=("user",))
    return release_of(rows, images, matrix, BUCKETS, ["bus", "car"], PROVENANCE, folder, rules)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return made(tmp_path_factory.mktemp("audit") / "a")


@pytest.fixture(scope="module")
def audited(release: Release) -> dict[str, Any]:
    return audit_release(release)


@pytest.fixture
def found(audited: dict[str, Any]) -> dict[str, Any]:
    """The findings, which a test may change."""
    return deepcopy(audited)


def test_a_near_copy_across_buckets_is_found(found: dict[str, Any]) -> None:
    copies = found["near_copies"]
    assert (copies["groups"], copies["groups_across"]["bucket"]) == (1, 1)
    assert sorted(copies["examples"][0]) == ["1car0", "2car0"]


def test_splits_that_keep_uploaders_together_have_none_on_both_sides(found: dict[str, Any]) -> None:
    assert found["uploaders"]["split_0"]["on_both_sides"] == 0


def test_cells_that_are_off_are_those_of_the_worst_split(found: dict[str, Any]) -> None:
    for name, missed in (("split_0", [{}] * 3), ("split_1", [])):
        found["splits"]["splits"][name]["missed"] = missed
    assert any("at most 3 of 4 cells" in line for line in lines(found))


def test_photos_without_uploaders_have_no_sentence_about_them(found: dict[str, Any]) -> None:
    assert any(line.startswith("uploaders") for line in lines(found))
    assert "Uploaders" in page(found)
    found["uploaders"] = dict.fromkeys(found["uploaders"], uploaders([None, None], ["train", "test"]))
    assert not any(line.startswith("uploaders") for line in lines(found))
    assert "Uploaders" not in page(found)


def test_photos_of_a_reset_clock_are_named(found: dict[str, Any]) -> None:
    """Case 5."""
    assert found["reset_clocks"] == {"1970-01-01": 16}, "its times are small numbers"
    (line,) = [line for line in lines(found) if "clocks" in line]
    assert line.startswith("dates: 16 photos on the first hour of 1970-01-01")
    assert not any("clocks" in line for line in lines(found | {"reset_clocks": {}}))


def test_prepared_pictures_are_counted_by_kind_and_bucket(found: dict[str, Any]) -> None:
    assert not any(line.startswith("prepared") for line in lines(found))
    counts = prepared(["turned upright; compressed again", None, "none", "turned upright"], [10, 1, 2, 2])
    found |= {"prepared": counts, "bucket_names": {}, "balance": found["balance"] | {"buckets": [1, 2, 10]}}
    (line,) = [line for line in lines(found) if line.startswith("prepared")]
    assert line == "prepared images, stored differently from how people see them: 2 turned upright (0 to 1 a bucket)"
    assert '<th scope="row">turned upright</th><td>0</td><td>1</td><td>1</td></tr>' in page(found)


def test_an_uploader_on_both_sides_is_counted_with_the_images() -> None:
    found = uploaders(["ann", "ann", "bob", None], ["train", "test", "train", "test"])
    assert found == {
        "uploaders": 2, "on_both_sides": 1, "images_of_them": 2, "unknown": 1, "largest_share": 0.5,
    }  # fmt: skip


def test_drift_is_accuracy_by_distance_in_time() -> None:
    """Two classes whose means turn by 40 degrees a bucket: right at home, wrong two buckets later."""
    rng = np.random.default_rng(0)
    rows, labels, buckets, sides = [], [], [], []
    for b in range(4):
        for c in (0, 1):
            angle = np.deg2rad(40 * b + 180 * c)
            rows.append(rng.normal(0, 0.1, (40, 2)) + [np.cos(angle), np.sin(angle)])
            labels += [c] * 40
            buckets += [b] * 40
            sides += ["train"] * 20 + ["test"] * 20
    found = drift(np.concatenate(rows).astype(np.float32), np.array(labels), np.array(buckets), np.array(sides))
    by = found["by_distance"]
    assert found["in_domain"] > 0.99
    assert by["3"] == {"change": pytest.approx(-1, abs=0.05), "tests": 1}
    assert by["1"]["change"] > -0.1


def test_a_streams_copies_correlation_and_drift(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    steps = []
    for i in range(3):
        x, y = rng.normal(size=(60, 4)).astype(np.float32), np.repeat(np.arange(3), 20)
        ids = np.array([f"{i}-{n}" for n in range(62)])
        test = Split(x[:2].copy(), y[:2], ids[60:])  # two training samples stand in the test split, too
        steps.append(Step(i, str(i), {"train": Split(x, y, ids[:60]), "test": test}))
    Stream("s", steps, ["a", "b", "c"]).save(tmp_path / "s")
    found = audit(tmp_path / "s")
    assert found["near_copies"]["groups_across"]["split"] == 6
    assert found["label_correlation"]["autocorrelation"]["1"] > 0.8
    assert set(found["drift"]["by_distance"]) == {"-2", "-1", "0", "1", "2"}
    (sentence,) = [line for line in lines(found) if line.startswith("drift: ")]
    points = f"{100 * found['drift']['by_distance']['2']['change']:+.1f}".replace("-", "−")
    assert f"; trained 2 buckets earlier, {points} points on the same test images (1 test bucket)" in sentence


def test_the_page_shows_outside_text_as_text(found: dict[str, Any]) -> None:
    found["name"] = "<script>x</script>"
    assert "<script>" not in page(found)
    assert any("near-duplicates" in line for line in lines(found))
    json.dumps(found)


def test_the_page_shows_copies_as_pictures_with_class_names(release: Release, found: dict[str, Any]) -> None:
    text = page(found, pictures(release.path, found))
    assert text.count("data:image/jpeg;base64,") == 2
    assert "car, 1, " in text


def test_a_group_in_train_and_test_is_marked_as_a_leak(found: dict[str, Any]) -> None:
    shown = {
        id_: [Shown(id_, "car", "1", side, "")]
        for id_, side in zip(found["near_copies"]["examples"][0], ("train", "test"), strict=True)
    }
    assert "in train and test" in page(found, shown)
    same = {id_: [Shown(id_, "car", "1", "train", "")] for id_ in shown}
    assert '<strong class="warn">in train and test' not in page(found, same)


@pytest.mark.proof("browser")
def test_axe_finds_nothing_on_the_page(release: Release, found: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "audit.html").write_text(page(found, pictures(release.path, found)))
    with chromium_browser() as browser:
        for scheme, width in (("light", 1400), ("dark", 390)):
            tab = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 800})
            tab.goto((tmp_path / "audit.html").as_uri())
            assert violations(tab) == {}
            assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match="Expected a run folder, a release or a stream"):
        audit(tmp_path)


def test_an_audit_finds_the_copies_that_the_release_tells_and_no_split_parts_them(journey: Path) -> None:
    release = Release.open(journey)
    told, found = release.facts["near_copies"], audit_release(release)["near_copies"]
    assert (found["groups"], found["images_in_groups"]) == (told["groups"], told["images_in_groups"])
    assert not any(n for name, n in found["groups_across"].items() if name.startswith("split"))
