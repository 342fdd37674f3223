"""Datasets of every format are one object: folders, arrays, releases, CIFAR's official files."""

import hashlib
import io
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from driftline.curate.core.errors import BadPlugin, MissingFile, UnknownName
from driftline.curate.core.registry import HOME
from driftline.curate.core.seeding import rng_for
from driftline.curate.release import Release
from driftline.stream_builder import lazy_images
from driftline.stream_builder.builders.shift_sequence import compose
from driftline.stream_builder.datasets import DATASETS, Options, open_dataset


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


def test_a_folder_of_class_folders(tmp_path: Path) -> None:
    dataset = open_dataset(write_folder(tmp_path / "images"), Options(size=12))
    assert (dataset.classes, len(dataset.train), len(dataset.test)) == (["n01", "n02"], 12, 8)
    assert dataset.train.x[:].shape == (12, 12, 12, 3)
    made = compose(dataset, "R:L", (8, 4, 8), 4, 0)
    assert made.steps[2]["test"].x.shape == (4, 12, 12, 3)


def test_a_file_stays_open_while_other_threads_open_more_than_stay_open(tmp_path, monkeypatch):
    """Closed in between, its number would be that of another file: the bytes of another image."""
    images, read_at = open_dataset(write_folder(tmp_path / "images"), Options(size=8)).train.x, lazy_images.read_at

    def meanwhile(file: int, size: int, offset: int) -> bytes:
        lazy_images._open_file.cache_clear()
        return read_at(file, size, offset)

    monkeypatch.setattr(lazy_images, "read_at", meanwhile)
    assert list(images.raw()) == [path.read_bytes() for path in images.files]


@pytest.mark.parametrize("mode", ["L", "RGBA", "I;16"])
def test_images_of_other_modes_are_read_as_rgb(tmp_path: Path, mode: str) -> None:
    x = open_dataset(write_folder(tmp_path / "images", mode), Options(size=8)).train.x[:]
    assert x.shape[1:] == (8, 8, 3)
    assert (x[..., 0] == x[..., 2]).all() or mode == "RGBA"


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
    with pytest.raises(MissingFile, match=r"Parquet files named \*train\*"):
        open_dataset(tmp_path)
    with pytest.raises(UnknownName, match="Unknown dataset 'cifar11'.*Did you mean 'cifar10'"):
        open_dataset("cifar11")


def test_what_gives_no_dataset_is_named() -> None:
    with pytest.raises(BadPlugin, match="returned NoneType. Expected a Dataset"):
        open_dataset("builtins:print")


@pytest.mark.parametrize("name", [name for name in DATASETS if DATASETS.entry(name).origin == HOME])
def test_a_named_dataset_says_what_is_missing(name: str, tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match=re.escape(str(tmp_path))):
        open_dataset(name, Options(tmp_path))


def test_no_format_claims_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match="has no known dataset format"):
        open_dataset(tmp_path)
