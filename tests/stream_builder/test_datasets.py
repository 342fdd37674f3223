"""Datasets of every format are one object: folders, tars, arrays, releases, CIFAR's official files."""

from __future__ import annotations

import hashlib
import io
import pickle
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from support.helpers import drifting

from driftline.curate.core.errors import BadInput, BadPlugin, DriftlineError, IntegrityError, MissingFile, UnknownName
from driftline.curate.core.registry import HOME
from driftline.curate.core.seeding import rng_for
from driftline.curate.release import Release
from driftline.stream_builder import lazy_images
from driftline.stream_builder.builders.shift_sequence import compose
from driftline.stream_builder.datasets import DATASETS, FORMATS, Options, open_dataset


def png(i: int, mode: str = "RGB", size: tuple[int, int] = (20, 16)) -> bytes:
    pixels = rng_for(0, "picture", i).integers(0, 256, (size[1], size[0], 3)).astype(np.uint8)
    buffer = io.BytesIO()
    image = Image.fromarray(pixels)
    (Image.fromarray(pixels[..., 0].astype(np.uint16) * 200) if mode == "I;16" else image.convert(mode)).save(
        buffer, "PNG"
    )
    return buffer.getvalue()


def write_folder(folder: Path, mode: str = "RGB") -> Path:
    for side, n in (("train", 6), ("val", 4)):
        for c, name in enumerate(("n01", "n02")):
            (folder / side / name).mkdir(parents=True)
            for i in range(n):
                (folder / side / name / f"{i}.png").write_bytes(png(100 * c + i, mode))
    return folder


def write_tars(folder: Path, extra: tuple[str, bytes] | None = None) -> Path:
    folder.mkdir()
    for side, n in (("train", 12), ("test", 8)):
        with tarfile.open(folder / f"toy_{side}-00000.tar", "w") as tar:
            members = [(f"{i:03d}.{kind}", data) for i in range(n)
                       for kind, data in (("png", png(i)), ("cls", str(i % 2).encode()))]  # fmt: skip
            for name, data in members + ([extra] if extra else []):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return folder


def test_a_folder_of_class_folders(tmp_path: Path) -> None:
    dataset = open_dataset(write_folder(tmp_path / "images"), Options(size=12))
    assert (dataset.classes, len(dataset.train), len(dataset.test)) == (["n01", "n02"], 12, 8)
    assert dataset.train.x[:].shape == (12, 12, 12, 3)
    made = compose(dataset, "R:L", (8, 4, 8), 4, 0)
    assert made.steps[2]["test"].x.shape == (4, 12, 12, 3)


def test_a_file_stays_open_while_other_threads_open_more_than_stay_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed in between, its number would be that of another file: the bytes of another image."""
    images, read_at = open_dataset(write_folder(tmp_path / "images"), Options(size=8)).train.x, lazy_images.read_at

    def meanwhile(file: int, size: int, offset: int) -> bytes:
        lazy_images._open_file.cache_clear()
        return read_at(file, size, offset)

    monkeypatch.setattr(lazy_images, "read_at", meanwhile)
    assert list(images.raw()) == [path.read_bytes() for path in images.files]


def test_imagenet_is_found_below_the_data_folder(tmp_path: Path) -> None:
    write_folder(tmp_path / "imagenet")
    assert open_dataset("imagenet", Options(tmp_path, size=8)).name == "imagenet"
    with pytest.raises(MissingFile, match="does not contain ImageNet"):
        open_dataset("imagenet", Options(tmp_path / "elsewhere"))


def test_tars_hold_what_a_folder_would(tmp_path: Path) -> None:
    dataset = open_dataset(write_tars(tmp_path / "tars"), Options(size=16))
    assert (len(dataset.train), dataset.train.y.tolist()) == (12, [0, 1] * 6)
    expected = Image.open(io.BytesIO(png(3))).crop((2, 0, 18, 16))
    assert (dataset.train.x[3] == np.asarray(expected)).all()


def test_a_tar_with_a_member_outside_its_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match=r"\.\./evil\.png"):
        open_dataset(write_tars(tmp_path / "tars", ("../evil.png", png(0))))
    with pytest.raises(BadInput, match=r"'zzz' has \['image'\]"):
        open_dataset(write_tars(tmp_path / "more", ("zzz.png", png(0))))


def test_class_folders_alone_have_a_test_part_of_each_class_and_say_so(tmp_path: Path) -> None:
    write_folder(tmp_path / "images")
    folder = (tmp_path / "images" / "train").rename(tmp_path / "photos")
    with pytest.warns(UserWarning, match="photos has no folder train: 30% of each class"):
        dataset, again = (open_dataset(folder, Options(size=12)) for _ in range(2))
    assert (dataset.classes, len(dataset.train), len(dataset.test)) == (["n01", "n02"], 8, 4)
    assert np.bincount(dataset.test.y).tolist() == [2, 2]
    assert sorted([*dataset.train.index, *dataset.test.index]) == list(range(12))
    assert dataset.test.index.tolist() == again.test.index.tolist()


def test_a_stream_is_a_dataset(tmp_path: Path) -> None:
    stream = drifting(steps=3).save(tmp_path / "s")
    dataset = open_dataset(tmp_path / "s")
    for samples, side in ((dataset.train, "train"), (dataset.test, "test")):
        assert np.array_equal(samples.x, stream.flat(side).x)
        assert np.array_equal(samples.y, stream.flat(side).y)
    moved = compose(dataset, "L", (60, 60), 20, 0)
    assert [len(step["train"]) for step in moved.steps] == [48, 48]


@pytest.mark.parametrize("mode", ["L", "RGBA", "I;16"])
def test_images_that_are_not_rgb_are_named(tmp_path: Path, mode: str) -> None:
    with pytest.raises(BadInput, match=r"\d\.png: an image of mode"):
        open_dataset(write_folder(tmp_path / "images", mode))


def test_a_release_is_a_dataset(journey: Path) -> None:
    release = Release.open(journey)
    dataset = open_dataset(journey, Options(size=16))
    assert dataset.classes == release.classes
    assert len(dataset.train) + len(dataset.test) == len(release.table)
    assert compose(dataset, "T", (22, 22), 22, 0).steps[1]["test"].x.shape == (22, 16, 16, 3)


def test_texts_as_vectors_are_a_dataset(tmp_path: Path) -> None:
    x = rng_for(0).normal(size=(20, 5)).astype(np.float16)
    y = np.arange(20) % 2
    meta = np.array(["notes"], object)
    np.savez(tmp_path / "intent.npz", train_x=x, train_y=y, test_x=x, test_y=y, labels=np.array(["a", "b"]), meta=meta)
    dataset = open_dataset(tmp_path / "intent.npz")
    assert (dataset.classes, dataset.train.x.dtype) == (["a", "b"], np.float16)


def test_cifars_official_files_are_read_after_their_checksums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvision.datasets import CIFAR10

    folder = tmp_path / CIFAR10.base_folder
    folder.mkdir()
    rng = rng_for(0, "cifar")

    def write(name: str, content: object) -> list[str]:
        data = pickle.dumps(content)
        (folder / name).write_bytes(data)
        return [name, hashlib.md5(data).hexdigest()]

    def batch(n: int) -> dict[str, object]:
        return {"data": rng.integers(0, 256, (n, 3072)).astype(np.uint8), "labels": [i % 10 for i in range(n)]}

    monkeypatch.setattr(CIFAR10, "train_list", [write(f"data_batch_{i}", batch(20)) for i in range(1, 6)])
    monkeypatch.setattr(CIFAR10, "test_list", [write("test_batch", batch(20))])
    names = {"label_names": [f"thing {i}" for i in range(10)]}
    meta = write("batches.meta", names)
    monkeypatch.setattr(CIFAR10, "meta", {"filename": meta[0], "key": "label_names", "md5": meta[1]})
    for dataset in (open_dataset(tmp_path), open_dataset("cifar10", Options(tmp_path))):
        assert (len(dataset.train), dataset.train.x.shape[1:], dataset.classes[3]) == (100, (32, 32, 3), "thing 3")
    (folder / "data_batch_2").write_bytes(b"changed")
    with pytest.raises(MissingFile, match="does not contain the complete CIFAR10"):
        open_dataset("cifar10", Options(tmp_path))


def test_what_is_not_a_dataset_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match=r"Parquet files or tars named \*train\*"):
        open_dataset(tmp_path)
    with pytest.raises(UnknownName, match="Unknown dataset 'cifar11'.*Did you mean 'cifar10'"):
        open_dataset("cifar11")


def test_a_dataset_of_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
import numpy as np
from driftline.stream_builder.datasets import Dataset, Samples

def squares(path, options):
    y = np.arange(40) % 2
    part = Samples(np.full((40, 4, 4, 3), 100, np.uint8), y, np.arange(40))
    return Dataset("squares", part, part, ["a", "b"])

def nothing(path, options):
    return None
"""
    (tmp_path / "plugin_datasets.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    assert compose("plugin_datasets:squares", "T", (10, 10), 10, 0).name == "squares-T"
    with pytest.raises(BadPlugin, match="returned NoneType. Expected a Dataset"):
        open_dataset("plugin_datasets:nothing")


@pytest.mark.parametrize("name", [name for name in DATASETS if DATASETS.entry(name).origin == HOME])
def test_a_named_dataset_says_what_is_missing(name: str, tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match=re.escape(str(tmp_path))):
        open_dataset(name, Options(tmp_path))


def test_no_format_claims_an_empty_folder(tmp_path: Path) -> None:
    assert [name for name in FORMATS if FORMATS[name].matches(tmp_path)] == []


def pictures_frame() -> pd.DataFrame:
    """Thirty pictures of three classes, whose index repeats."""
    pictures = [rng_for(0, i).integers(0, 256, (12, 16, 3)).astype(np.uint8) for i in range(30)]
    return pd.DataFrame({"picture": pictures, "label": ["c", "a", "b"] * 10}, index=[0, 1] * 15)


def test_a_data_frame_of_pictures_is_a_dataset() -> None:
    frame = pictures_frame()
    dataset = open_dataset(frame, x="picture")
    assert (dataset.classes, len(dataset.train), np.bincount(dataset.test.y).tolist()) == (list("abc"), 21, [3, 3, 3])
    assert sorted([*dataset.train.index, *dataset.test.index]) == list(range(30))
    for part in (dataset.train, dataset.test):
        for x, y, i in zip(part.x, part.y, part.index, strict=True):
            assert (x == frame["picture"].iloc[i]).all()
            assert dataset.classes[y] == frame["label"].iloc[i]
    of_pillow = open_dataset(frame.assign(picture=[Image.fromarray(p) for p in frame["picture"]]), x="picture")
    assert (of_pillow.train.x == dataset.train.x).all()
    assert compose(dataset, "T:R", [6, 6, 6], 6, oracle=False).x_shape == (12, 16, 3)


def test_a_data_frame_of_numbers_or_texts_is_a_dataset() -> None:
    frame = pd.DataFrame({"a": np.arange(30), "b": 0.5, "text": "hello", "label": ["x", "y", "z"] * 10})
    assert open_dataset(frame, x=["a", "b"]).train.x.shape == (21, 2)
    assert open_dataset(frame, x="text").train.x.tolist() == ["hello"] * 21


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f[:0], "The table has no rows"),
        (lambda f: f.drop(columns="picture"), "The table has no column 'picture'. It has label"),
        (lambda f: pd.concat([f, f], axis=1), "more than one column 'picture'"),
        (lambda f: f.assign(label=["a", None] * 15), "the table, row 1: label is empty"),
        (
            lambda f: f.assign(picture=[*f["picture"][:-1], np.zeros((4, 4, 3), np.uint8)]),
            r"row 29: picture has shape \(4, 4, 3\), and \(12, 16, 3\) in row 0. Expected pictures of one size",
        ),
        (lambda f: f.assign(picture=[p / 255 for p in f["picture"]]), "row 0: picture has shape .*dtype float64"),
        (lambda f: f[:1], "no test samples"),
        (lambda _: [1, 2], "The dataset is list. Expected a path, a name or a data frame"),
    ],
)
def test_a_bad_data_frame_gets_one_sentence(change: Callable[[pd.DataFrame], Any], message: str) -> None:
    with pytest.raises(DriftlineError, match=message):
        open_dataset(change(pictures_frame()), x="picture")
