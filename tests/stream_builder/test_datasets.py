"""Bases of every kind are one object: folders, tars, arrays, releases, CIFAR's official files."""

from __future__ import annotations

import hashlib
import io
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from curate.core.errors import BadInput, IntegrityError, MissingFile, UnknownName
from curate.core.seeding import rng_for
from curate.release import Release
from stream_builder.builders.shift_sequence import compose
from stream_builder.datasets import Options, open_base


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
    base = open_base(write_folder(tmp_path / "images"), Options(size=12))
    assert (base.classes, len(base.train), len(base.test)) == (["n01", "n02"], 12, 8)
    assert base.train.x[:].shape == (12, 12, 12, 3)
    made = compose(base, "R:L", (8, 4, 8), 4, 0)
    assert made.steps[2]["test"].x.shape == (4, 12, 12, 3)


def test_imagenet_is_found_below_the_data_folder(tmp_path: Path) -> None:
    write_folder(tmp_path / "imagenet")
    assert open_base("imagenet", Options(tmp_path, size=8)).name == "imagenet"
    with pytest.raises(MissingFile, match="holds no ImageNet"):
        open_base("imagenet", Options(tmp_path / "elsewhere"))


def test_tars_hold_what_a_folder_would(tmp_path: Path) -> None:
    base = open_base(write_tars(tmp_path / "tars"), Options(size=16))
    assert (len(base.train), base.train.y.tolist()) == (12, [0, 1] * 6)
    expected = Image.open(io.BytesIO(png(3))).crop((2, 0, 18, 16))
    assert (base.train.x[3] == np.asarray(expected)).all()


def test_a_tar_with_a_member_outside_its_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match=r"\.\./evil\.png"):
        open_base(write_tars(tmp_path / "tars", ("../evil.png", png(0))))
    with pytest.raises(BadInput, match=r"'zzz' holds \['picture'\]"):
        open_base(write_tars(tmp_path / "more", ("zzz.png", png(0))))


@pytest.mark.parametrize("mode", ["L", "RGBA", "I;16"])
def test_pictures_that_are_not_rgb_are_named_when_they_are_drawn(tmp_path: Path, mode: str) -> None:
    base = open_base(write_folder(tmp_path / "images")) if mode == "RGB" else None
    write_folder(tmp_path / mode.replace(";", ""), mode)
    with pytest.raises(BadInput, match=r"\d\.png: an image of mode"):
        compose(open_base(tmp_path / mode.replace(";", "")), "R", (8, 8), 4, 0)
    assert base is None


def test_a_release_is_a_base(journey: Path) -> None:
    release = Release.open(journey)
    base = open_base(journey, Options(size=16))
    assert base.classes == release.classes
    assert len(base.train) + len(base.test) == len(release.table)
    assert compose(base, "T", (22, 22), 22, 0).steps[1]["test"].x.shape == (22, 16, 16, 3)


def test_texts_as_vectors_are_a_base(tmp_path: Path) -> None:
    x = rng_for(0).normal(size=(20, 5)).astype(np.float16)
    y = np.arange(20) % 2
    meta = np.array(["notes"], object)
    np.savez(tmp_path / "intent.npz", train_x=x, train_y=y, test_x=x, test_y=y, labels=np.array(["a", "b"]), meta=meta)
    base = open_base(tmp_path / "intent.npz")
    assert (base.classes, base.train.x.dtype) == (["a", "b"], np.float16)


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
    for base in (open_base(tmp_path), open_base("cifar10", Options(tmp_path))):
        assert (len(base.train), base.train.x.shape[1:], base.classes[3]) == (100, (32, 32, 3), "thing 3")
    (folder / "data_batch_2").write_bytes(b"changed")
    with pytest.raises(MissingFile, match="holds no whole CIFAR10"):
        open_base("cifar10", Options(tmp_path))


def test_what_is_no_base_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match=r"Expected Parquet files or tars named \*train\*"):
        open_base(tmp_path)
    with pytest.raises(UnknownName, match="no base 'cifar11'.*cifar10"):
        open_base("cifar11")
