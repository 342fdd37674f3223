"""CLEAR's official layouts give the stream of the release that they were made from; damage is one sentence."""

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.clear_layouts import bare_layout, made_release, new_layout, old_layout
from support.traps import Trap

from driftline.curate.core.atomic_io import sha256_file
from driftline.curate.core.errors import BadInput, DriftlineError, IntegrityError, MissingFile
from driftline.curate.release import Release
from driftline.stream_builder.builders.release import from_release
from driftline.stream_builder.importers.clear import from_clear
from driftline.stream_builder.importers.clear_layouts import CLEAR10
from driftline.stream_builder.stream import Stream


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return made_release(tmp_path_factory.mktemp("clear") / "release")


@pytest.fixture(scope="module")
def layouts(release: Release, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("layouts")
    return {"old": old_layout(release, folder / "old"), "new": new_layout(release, folder / "new")}


@pytest.fixture
def copied(layouts: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: Path(shutil.copytree(layouts[name], tmp_path / name, copy_function=os.link))


def content(stream: Stream, published: bool) -> Any:
    """Everything but the numbers of groups; the partition that they make instead."""
    found = []
    for step in stream.steps:
        for side, split in sorted(step.splits.items()):
            x = split.x.sha256() if hasattr(split.x, "sha256") else split.x.tobytes()
            tests = split.test_in.tolist() if published and split.test_in is not None else None
            found.append((step.index, step.name, side, x, split.y.tolist(), split.ids.tolist(), split.time, tests))
    return [[t.tolist() if isinstance(t, np.ndarray) else t for t in row] for row in found]


@pytest.mark.parametrize("layout", ["old", "new"])
@pytest.mark.parametrize("features", ["images:8", "moco_b0"])
def test_a_layout_gives_the_stream_of_its_release(layout, features, layouts, release, tmp_path):
    ours = from_release(release, features if features != "moco_b0" else None)
    theirs = from_clear(layouts[layout], features).save(tmp_path / "S")
    assert theirs.classes == ours.classes
    assert content(theirs, layout == "old") == content(ours, layout == "old")
    assert theirs.published_splits == (5 if layout == "old" else 0)
    assert theirs.facts["cite"].startswith("Lin")


def test_each_published_split_can_be_chosen(layouts: dict[str, Path], release: Release) -> None:
    ours, theirs = from_release(release, "images:8", 3), from_clear(layouts["old"], "images:8", 3)
    assert content(theirs, True) == content(ours, True)


def test_uploaders_are_known(layouts: dict[str, Path], release: Release) -> None:
    user = dict(zip(release.table["id"].to_pylist(), release.table["user"].to_pylist(), strict=True))
    flat = from_clear(layouts["new"], "images:8").flat("train")
    assert flat.group is not None
    of_user = {user[id_]: group for id_, group in zip(flat.ids.tolist(), flat.group.tolist(), strict=True)}
    assert len(set(of_user.values())) == len(of_user)


def undated(records: Any) -> None:
    next(iter(records.values()))["DATE_UPLOADED"] = None


def test_a_photo_without_a_date_leaves_the_stream_without_times(copied: Callable[[str], Path]) -> None:
    folder = copied("new")
    root = next(folder.rglob("labeled_metadata.json")).parent
    edit(root / "labeled_metadata" / "2" / "bus.json", undated)
    assert from_clear(folder, "images:8").flat("train").time is None


def test_bucket_0_is_for_pre_training(copied: Callable[[str], Path]) -> None:
    folder = copied("new")
    images = sorted((folder / "train" / "labeled_images" / "1" / "bus").iterdir())
    (folder / "train" / "all_images" / "0").mkdir(parents=True)
    for i in range(2):
        os.link(images[0], folder / "train" / "all_images" / "0" / f"unseen{i}.jpg")
    os.link(images[1], folder / "train" / "all_images" / "0" / images[1].name)  # labelled elsewhere: left out
    assert len(from_clear(folder, "images:8").unlabelled) == 2


def test_buckets_are_in_the_order_of_their_numbers_and_0_is_for_pre_training_if_all_are_there(tmp_path: Path) -> None:
    all_buckets = bare_layout(tmp_path / "all", [str(number) for number in range(10, -1, -1)])
    stream = from_clear(all_buckets, "images:8")
    assert [step.name for step in stream.steps] == [str(number) for number in range(1, 11)]
    assert stream.unlabelled is not None
    assert len(stream.unlabelled) == 8
    as_step = from_clear(all_buckets, "images:8", first_bucket="step")
    assert [step.name for step in as_step.steps] == [str(number) for number in range(11)]
    assert as_step.unlabelled is None


def test_of_a_part_of_the_buckets_0_is_a_step_unless_asked_for(tmp_path: Path) -> None:
    part = bare_layout(tmp_path, ["2", "10", "0"])
    auto, prior = from_clear(part, "images:8"), from_clear(part, "images:8", first_bucket="unlabelled")
    assert ([step.name for step in auto.steps], auto.unlabelled) == (["0", "2", "10"], None)
    assert ([step.name for step in prior.steps], len(prior.unlabelled)) == (["2", "10"], 8)


@pytest.mark.shared(twin="tests/stream_builder/test_clear_import.py::test_a_layout_gives_the_stream_of_its_release")
def test_the_name_lists_are_the_published_ones(shared: Path) -> None:
    group = json.loads((shared / "clear" / "clear_10_config.json").read_text())["GROUP"]
    assert sorted([*group, "BACKGROUND"]) == CLEAR10


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    """Rewrite a JSON file; the original is a hard link, so the new one is another file."""
    value = json.loads(path.read_text())
    value = change(value) or value
    path.unlink()
    path.write_text(json.dumps(value))


def wrong_bucket_new(folder: Path) -> None:
    """A photo of bucket 1 moves to bucket 3, with its metadata and its image."""
    root = folder / "train"
    source, target = (root / "labeled_metadata" / b / "bus.json" for b in "13")
    records = json.loads(source.read_text())
    id_ = next(iter(records))
    moved = records[id_] | {"IMG_PATH": f"labeled_images/3/bus/{id_}.jpg"}
    os.link(root / records[id_]["IMG_PATH"], root / moved["IMG_PATH"])
    edit(source, lambda value: value.pop(id_) and value)
    edit(target, lambda value: value | {id_: moved})


def wrong_bucket_old(folder: Path) -> None:
    lists = folder / "training_folder" / "filelists"
    line = (lists / "1" / "all.txt").read_text().splitlines()[0]
    text = (lists / "3" / "all.txt").read_text()
    (lists / "3" / "all.txt").unlink()
    (lists / "3" / "all.txt").write_text(f"{text}{line}\n")


def all_buckets_everywhere(folder: Path) -> None:
    """What Avalanche 0.6.0 makes of the new layout."""
    edit(folder / "train" / "labeled_metadata.json", lambda value: value | {"2": value["1"]})


def half(folder: Path) -> None:
    shutil.rmtree(folder / "train" / "labeled_images" / "2")


def empty_image(folder: Path) -> None:
    image = next((folder / "train" / "labeled_images" / "2" / "bus").iterdir())
    image.unlink()
    image.touch()


def other_order(folder: Path) -> None:
    for side in ("train", "test"):
        path = folder / side / "class_names.txt"
        path.unlink()
        path.write_text("\n".join(CLEAR10[::-1]))


def other_test_classes(folder: Path) -> None:
    path = folder / "test" / "class_names.txt"
    path.unlink()
    path.write_text("\n".join(["other", *CLEAR10[1:]]))


def wrong_label(folder: Path) -> None:
    path = folder / "training_folder" / "filelists" / "1" / "all.txt"
    text = path.read_text().replace("labeled_images/1/002/", "labeled_images/1/camera/")
    path.unlink()
    path.write_text(text)


def wrong_sum(folder: Path) -> None:
    name = "train/class_names.txt"
    (folder / "SHA256SUMS").write_text(f"{sha256_file(folder / name)}  {name}\n{'0' * 64}  test/class_names.txt\n")


def zipped(folder: Path) -> None:
    for side in ("train", "test"):
        shutil.rmtree(folder / side)
    (folder / "clear10-train.zip").touch()


def lost_split(folder: Path) -> None:
    path = next((folder / "training_folder").glob("testset_*/split_2/2/test.txt"))
    text = path.read_text().splitlines()
    path.unlink()
    path.write_text("\n".join(text[1:]))


def bucket_outside(folder: Path) -> None:
    edit(folder / "training_folder" / "bucket_indices.json", lambda value: ["../../..", *value[1:]])


WRONG: dict[str, tuple[str, Callable[[Path], None], type[DriftlineError], str]] = {
    "wrong bucket": ("new", wrong_bucket_new, IntegrityError, r"of bucket 3 was uploaded on 2007-04-\d\d, before"),
    "wrong bucket, old layout": ("old", wrong_bucket_old, IntegrityError, "which is in bucket 1"),
    "a bucket twice": ("new", all_buckets_everywhere, IntegrityError, "Expected images of bucket 2"),
    "half a download": ("new", half, MissingFile, r"\d+ of \d+ images of .* are missing"),
    "an empty image": ("new", empty_image, MissingFile, r"1 of \d+ images of .* are missing or empty"),
    "classes in another order": ("new", other_order, BadInput, "CLEAR-10 publishes 'BACKGROUND' there"),
    "classes of another version": ("new", other_test_classes, BadInput, "differs from that of train"),
    "a label of another class": ("old", wrong_label, IntegrityError, "the label 2, which is 'bus'"),
    "a wrong checksum": ("new", wrong_sum, IntegrityError, "test/class_names.txt is not the file that"),
    "not unpacked": ("new", zipped, MissingFile, "clear10-train.zip is not unpacked"),
    "a bucket outside": ("old", bucket_outside, IntegrityError, "names the file '../../..': it begins with a dot"),
    "a split of another version": ("old", lost_split, IntegrityError, "does not list the images of"),
}


@pytest.mark.parametrize("name", WRONG)
def test_damage_is_one_sentence(name: str, copied: Callable[[str], Path]) -> None:
    layout, damage, kind, words = WRONG[name]
    folder = copied(layout)
    damage(folder)
    with pytest.raises(kind, match=words) as caught:
        from_clear(folder, "images:8")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("zipped", [True, False])
def test_code_in_features_is_never_run(copied: Callable[[str], Path], tmp_path: Path, zipped: bool) -> None:
    folder = copied("old")
    target = folder / "training_folder" / "features" / "moco_b0" / "2" / "all.pth"
    target.unlink()
    torch.save((Trap(tmp_path / "ran"), [0]), target, _use_new_zipfile_serialization=zipped)
    with pytest.raises(BadInput, match="which may be code and is never run"):
        from_clear(folder, "moco_b0")
    assert not (tmp_path / "ran").exists()
    target.write_bytes(pickle.dumps(Trap(tmp_path / "ran")))
    with pytest.raises(BadInput):
        from_clear(folder, "moco_b0")
    assert not (tmp_path / "ran").exists()


def test_features_of_another_version_are_refused(copied: Callable[[str], Path]) -> None:
    folder = copied("old")
    path = folder / "training_folder" / "features" / "moco_b0" / "3" / "all.pth"
    _, labels = torch.load(path, weights_only=True)
    for vectors, y, words in (
        (torch.zeros(3, 8), [0, 1, 2], "does not have the 33 labels"),
        (torch.zeros(len(labels), 5), labels, "have 5 numbers, others 8"),
        (torch.full((len(labels), 8), torch.nan), labels, "one finite vector a photo"),
    ):
        path.unlink()
        torch.save((vectors, y), path)
        with pytest.raises(IntegrityError, match=words):
            from_clear(folder, "moco_b0")
    with pytest.raises(MissingFile, match="has no features 'byol'. There is clip, moco_b0"):
        from_clear(folder, "byol")
