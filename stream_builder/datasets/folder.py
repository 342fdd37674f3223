"""Folders `train/CLASS/…` and `test/CLASS/…` (or `val/…`) of images; ImageNet is one."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from curate.core.errors import BadInput, MissingFile
from stream_builder.datasets import Base, Options, Side
from stream_builder.lazy_images import PICTURES, of_files


def open_folder(place: Path, options: Options) -> Base:
    """Classes are the folders of `train`, sorted; images are decoded when drawn, to `options.size`."""
    test = next((place / name for name in ("test", "val") if (place / name).is_dir()), None)
    if test is None:
        raise MissingFile(f"{place} has a folder train and neither test nor val.", "Expected one of them.")
    classes = sorted(p.name for p in (place / "train").iterdir() if p.is_dir())
    if not classes:
        raise MissingFile(f"{place / 'train'} holds no class folders.", "Expected train/CLASS/picture.jpg.")
    train, held = (_side(folder, classes, options.size) for folder in (place / "train", test))
    return Base(place.name, train, held, classes)


def imagenet(place: Path, options: Options) -> Base:
    """ImageNet's folders train/ and val/ of WordNet ids, below the data folder."""
    found = next((p for p in (place / "imagenet", place) if (p / "train").is_dir()), None)
    if found is None:
        raise MissingFile(
            f"{place} holds no ImageNet.", "Expected train/nXXXXXXXX/*.JPEG and val/.", "Name it with --data-dir."
        )
    base = open_folder(found, options)
    return Base("imagenet", base.train, base.test, base.classes)


def _side(folder: Path, classes: list[str], size: int) -> Side:
    if strange := sorted({p.name for p in folder.iterdir() if p.is_dir()} - set(classes)):
        raise BadInput(f"{folder} holds the class {strange[0]!r}, train does not.", "Expected the classes of train.")
    paths, labels = [], []
    for label, name in enumerate(classes):
        mine = sorted(p for p in (folder / name).glob("*") if p.suffix.lower() in PICTURES)
        paths += mine
        labels += [label] * len(mine)
    return Side(of_files(paths, size, strict=True), np.array(labels, np.int64), np.arange(len(labels)))
