"""Bases: labelled images (or features) to draw a shift sequence from.

A base is opened by its name (`cifar10`, in `--data-dir` or downloaded through torchvision) or by a path, whose content
says which kind it is. A new kind is one file here and one line in `KINDS`; a new name one line in `NAMES`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from curate.core.errors import BadArray, BadConfig, MissingFile
from curate.core.registry import Registry
from stream_builder.shifts.base import Labels
from stream_builder.stream import Array
from stream_builder.validate import check


@dataclass(frozen=True)
class Side:
    """x: (N, H, W, 3) uint8 images, decoded or not, or (N, D) float features. y: (N,) classes from 0. index: (N,) the
    sample's own number. sub: (N,) number of its sub-class within the class, from 0, or None."""

    x: Any
    y: Labels
    index: Array
    sub: Labels | None = None

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class Base:
    """classes: names. draws: published draws by name (`t0_train` …: indices in order), where there are some."""

    name: str
    train: Side
    test: Side
    classes: list[str]
    draws: Mapping[str, Array] = field(default_factory=dict)

    @property
    def subclasses(self) -> int:
        """Sub-classes of each class; 0: it has none."""
        return 0 if self.train.sub is None else int(self.train.sub.max()) + 1


@dataclass(frozen=True)
class Options:
    """data_dir: where named sets lie. labels: "fine" or "coarse", of sets that have both (None: coarse). size: edge of
    images that are decoded. download: fetch a named set that is not in `data_dir`."""

    data_dir: Path | None = None
    labels: str | None = None
    size: int = 32
    download: bool = False


class Opener(Protocol):
    """A function place, options → base."""

    def __call__(self, place: Path, options: Options) -> Base:
        """Open what lies at `place`. Raises MissingFile, BadInput."""
        ...


KINDS = Registry(
    "kind of base",
    {
        "arrays": "stream_builder.datasets.arrays:open_arrays",
        "release": "stream_builder.datasets.release:open_release",
        "texts": "stream_builder.datasets.texts:open_texts",
        "parquet": "stream_builder.datasets.parquet:open_parquet",
        "cifar": "stream_builder.datasets.vision:open_cifar",
        "tars": "stream_builder.datasets.tars:open_tars",
        "folder": "stream_builder.datasets.folder:open_folder",
    },
)
NAMES = Registry(
    "base",
    {
        "cifar10": "stream_builder.datasets.vision:cifar10",
        "cifar100": "stream_builder.datasets.vision:cifar100",
        "mnist": "stream_builder.datasets.vision:mnist",
        "fashion-mnist": "stream_builder.datasets.vision:fashion_mnist",
        "banking77": "stream_builder.datasets.intents:banking77",
        "clinc150": "stream_builder.datasets.intents:clinc150",
        "imagenet": "stream_builder.datasets.folder:imagenet",
    },
    group="datasets",
)


def open_base(given: str | Path, options: Options | None = None) -> Base:
    """A path, or else a name. Raises MissingFile, BadInput, UnknownName; BadArray for labels that are out of range."""
    options = options or Options()
    if options.labels not in (None, "fine", "coarse"):
        raise BadConfig(f"--labels is {options.labels!r}.", "Expected fine or coarse.")
    place = Path(given)
    opener: Opener
    if place.exists():
        opener = KINDS[kind_of(place)]
        base = opener(place, options)
    elif "/" in str(given) or str(given).endswith(".npz"):
        raise MissingFile(f"There is no folder {place}.", "Expected a base: a folder, an .npz file or a name.")
    else:
        opener = NAMES[str(given)]
        base = opener(options.data_dir or Path("data"), options)
    for side, what in ((base.train, "train"), (base.test, "test")):
        if not len(side):
            raise BadArray(f"The {what} side of {base.name} is empty.", "Expected at least one sample.")
        sample = side.x if isinstance(side.x, np.ndarray) else side.x[:1]
        check(sample, side.y[: len(sample)], len(base.classes), f"{base.name}, {what}")
        if side.y.min() < 0 or side.y.max() >= len(base.classes):
            raise BadArray(
                f"{base.name}, {what}: labels from {side.y.min()} to {side.y.max()}.",
                f"Expected 0 … {len(base.classes) - 1}.",
            )
    return base


def kind_of(place: Path) -> str:
    """What lies at a path, by its content. Raises MissingFile naming what was looked for."""
    from stream_builder.datasets.texts import holds_texts

    if place.is_file():
        if place.suffix == ".npz":
            return "arrays"
        if holds_texts(place):
            return "texts"
        raise MissingFile(f"{place} is no base.", "Expected an .npz file, a table of texts or a folder.")
    if (place / "release.json").is_file() or any(place.glob("stages/*_publish/release")):
        return "release"
    if any(place.glob("*train*.parquet")):
        return "parquet"
    if any((place / name).is_dir() for name in ("cifar-10-batches-py", "cifar-100-python")):
        return "cifar"
    if any(place.glob("*train*.tar")):
        return "tars"
    if holds_texts(place):
        return "texts"
    if (place / "train").is_dir():
        return "folder"
    raise MissingFile(
        f"{place} holds 0 files *train*.parquet, and nothing else that a base could be.",
        "Expected Parquet files or tars named *train* and *test*, folders train/ and test/ (or val/) of class folders, "
        "the folder of a release, or CIFAR's own folder.",
    )


def coarse(fine: Labels, order: Sequence[Sequence[int]] | None) -> tuple[Labels, Labels]:
    """Super-class and number of the sub-class within it, of every fine label. Raises MissingFile without an order."""
    if order is None:
        raise MissingFile("Coarse labels need the order of sub-classes.", "Expected names.json with subpop_order.")
    where = {f: (c, i) for c, group in enumerate(order) for i, f in enumerate(group)}
    pairs = np.array([where[int(f)] for f in fine], np.int64).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()
