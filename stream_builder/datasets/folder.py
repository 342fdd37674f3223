"""Folders `train/CLASS/…` and `test/CLASS/…` (or `val/…`) of images, as ImageNet is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from driftline.curate.core.errors import BadInput, MissingFile
from driftline.curate.core.outside.images import IMAGE_SUFFIXES
from driftline.stream_builder.datasets import Dataset, Format, Options, Samples
from driftline.stream_builder.lazy_images import from_files


def open_folder(path: Path, options: Options) -> Dataset:
    """Classes are the folders in `train`, sorted; images are decoded when drawn, at `options.size`."""
    test_folder = next((path / name for name in ("test", "val") if (path / name).is_dir()), None)
    if test_folder is None:
        raise MissingFile(f"{path} has a folder train, but neither test nor val.", "Expected one of them.")
    classes = sorted(p.name for p in (path / "train").iterdir() if p.is_dir())
    if not classes:
        raise MissingFile(f"{path / 'train'} has no class folders.", "Expected train/CLASS/image.jpg.")
    if extra := sorted({p.name for p in test_folder.iterdir() if p.is_dir()} - set(classes)):
        raise BadInput(f"{test_folder} has the class {extra[0]!r}, train does not.", "Expected the classes of train.")
    train, test = (_samples(folder, classes, options.size) for folder in (path / "train", test_folder))
    return Dataset(path.name, train, test, classes)


def imagenet(path: Path, options: Options) -> Dataset:
    """ImageNet: folders train/ and val/ of WordNet ids, in the data folder or in its folder imagenet."""
    folder = next((p for p in (path / "imagenet", path) if (p / "train").is_dir()), None)
    if folder is None:
        raise MissingFile(
            f"{path} does not contain ImageNet.", "Expected train/nXXXXXXXX/*.JPEG and val/.",
            "Name its folder with --data-dir.",
        )  # fmt: skip
    return replace(open_folder(folder, options), name="imagenet")


def _samples(folder: Path, classes: list[str], size: int) -> Samples:
    paths, labels = [], []
    for label, name in enumerate(classes):
        of_class = sorted(p for p in (folder / name).glob("*") if p.suffix.lower() in IMAGE_SUFFIXES)
        paths += of_class
        labels += [label] * len(of_class)
    return Samples(from_files(paths, size, strict=True), np.array(labels, np.int64), np.arange(len(labels)))


FORMAT = Format(lambda path: (path / "train").is_dir(), open_folder)
