"""Folders `train/CLASS/…` and `test/CLASS/…` (or `val/…`) of images, ImageNet is one; or `CLASS/…` alone."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

from driftline.curate.core.errors import BadInput, MissingFile
from driftline.curate.core.group_split import draw_sides
from driftline.curate.core.outside.images import IMAGE_SUFFIXES
from driftline.curate.core.seeding import rng_for
from driftline.stream_builder.datasets import Dataset, Format, Options, Samples
from driftline.stream_builder.lazy_images import from_files

SHARE = 0.3  # of each class, that becomes test samples where the folder does not say


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


def open_classes(path: Path, options: Options) -> Dataset:
    """Classes are the folders with images, sorted. A random SHARE of each class, the same each time, is test samples,
    which a warning says."""
    whole = _samples(path, _classes(path), options.size)
    test = draw_sides((whole.y,), whole.index, SHARE, rng_for(0, "test"))
    warnings.warn(f"{path} has no folder train: {SHARE:.0%} of each class, at random, are test samples.", stacklevel=2)
    rows = map(np.flatnonzero, (~test, test))
    train, held_out = (Samples(whole.x.select(of_side), whole.y[of_side], of_side) for of_side in rows)
    return Dataset(path.name, train, held_out, _classes(path))


def _classes(path: Path) -> list[str]:
    """The folders in a folder that hold an image, sorted."""
    folders = sorted(p for p in path.iterdir() if p.is_dir()) if path.is_dir() else []
    return [p.name for p in folders if any(file.suffix.lower() in IMAGE_SUFFIXES for file in p.iterdir())]


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


CLASSES = Format(lambda path: bool(_classes(path)), open_classes)
FORMAT = Format(lambda path: (path / "train").is_dir(), open_folder)
