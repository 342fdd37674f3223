"""Formats of images and features: .npz, class folders, releases, Parquet, CIFAR."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from driftline.curate.core.atomic_io import read_object
from driftline.curate.core.errors import BadArray, BadInput, DriftlineError, MissingFile, reason
from driftline.curate.foreign.arrays import number_of_classes, read_arrays
from driftline.curate.foreign.images import IMAGE_SUFFIXES, as_rgb, open_image
from driftline.curate.foreign.tables import read_parquet
from driftline.curate.release import Release
from driftline.stream_builder.datasets.base import Dataset, Options, Samples
from driftline.stream_builder.lazy_images import from_files, from_tars
from driftline.stream_builder.shifts.base import Labels
from driftline.stream_builder.stream import Array

THREADS = 8  # Pillow decodes without Python's lock
# Sub-classes of CIFAR-100's twenty super-classes, in the order in which Seq-to-Final's code introduces them [spec].
ORDER = (
    "otter seal beaver dolphin whale; flatfish trout aquarium_fish ray shark; poppy tulip rose orchid sunflower; "
    "bottle cup can bowl plate; apple pear orange sweet_pepper mushroom; clock lamp telephone television keyboard; "
    "chair couch bed table wardrobe; beetle cockroach bee butterfly caterpillar; leopard tiger lion bear wolf; "
    "road bridge house castle skyscraper; plain forest mountain cloud sea; camel cattle chimpanzee kangaroo elephant; "
    "skunk possum raccoon porcupine fox; crab lobster spider snail worm; man woman boy girl baby; "
    "lizard snake turtle crocodile dinosaur; mouse shrew hamster rabbit squirrel; "
    "oak_tree pine_tree maple_tree willow_tree palm_tree; bicycle motorcycle pickup_truck bus train; "
    "streetcar tractor tank lawn_mower rocket"
)
COARSE = (
    "aquatic_mammals", "fish", "flowers", "food_containers", "fruit_and_vegetables", "household_electrical_devices",
    "household_furniture", "insects", "large_carnivores", "large_man-made_outdoor_things",
    "large_natural_outdoor_scenes", "large_omnivores_and_herbivores", "medium_mammals", "non-insect_invertebrates",
    "people", "reptiles", "small_mammals", "trees", "vehicles_1", "vehicles_2",
)  # fmt: skip


def open_arrays(path: Path, options: Options) -> Dataset:
    """Optional arrays: train_sub and test_sub (number of the sub-class within the class), classes or label_names."""
    arrays = read_arrays(path, "Expected arrays saved with numpy.savez.", skip_objects=True)
    if missing := {"train_x", "train_y", "test_x", "test_y"} - set(arrays):
        raise BadInput(
            f"{path} lacks {', '.join(sorted(missing))}.", f"It holds {', '.join(sorted(arrays)) or 'nothing'}."
        )
    parts = []
    for part in ("train", "test"):
        x, y = arrays[f"{part}_x"], arrays[f"{part}_y"]
        if y.ndim != 1 or x.ndim == 0 or len(x) != len(y) or y.dtype.kind not in "iu":
            raise BadArray(
                f"{part}_y in {path} has shape {y.shape} and dtype {y.dtype} for {len(x)} samples.",
                "Expected one integer per sample.",
            )
        subclass = arrays.get(f"{part}_sub")
        if subclass is not None and (subclass.shape != y.shape or subclass.dtype.kind not in "iu"):
            raise BadArray(f"{part}_sub in {path} has shape {subclass.shape}.", "Expected one integer per sample.")
        subclass = None if subclass is None else subclass.astype(np.int64)
        parts.append(Samples(x, y.astype(np.int64), np.arange(len(y)), subclass))
    n_classes = number_of_classes([samples.y for samples in parts], path)
    names = next((arrays[k] for k in ("classes", "label_names", "labels") if k in arrays), None)
    try:
        classes = [str(c) for c in names] if names is not None and names.ndim == 1 and len(names) >= n_classes else None
    except SystemError as error:  # a code point beyond Unicode
        problem = f"The names of classes in {path} are no text ({reason(error)})."
        raise BadArray(problem, "Expected numbers or texts.") from None
    return Dataset(path.stem, parts[0], parts[1], classes or [str(c) for c in range(n_classes)])


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
    train, test = (_images(folder, classes, options.size) for folder in (path / "train", test_folder))
    return Dataset(path.name, train, test, classes)


def _images(folder: Path, classes: list[str], size: int) -> Samples:
    paths, labels = [], []
    for label, name in enumerate(classes):
        of_class = sorted(p for p in (folder / name).glob("*") if p.suffix.lower() in IMAGE_SUFFIXES)
        paths += of_class
        labels += [label] * len(of_class)
    return Samples(from_files(paths, size, folder), np.array(labels, np.int64), np.arange(len(labels)))


def open_release(path: Path, options: Options) -> Dataset:
    """Images are decoded when drawn, at `options.size`. path: of the release, or of the run that published it."""
    release = Release.open(path)
    tars, members, split = (release.table[name].to_pylist() for name in ("shard", "member", "split_0"))
    x = from_tars(release.path / "shards", tars, members, options.size)
    y = release.table["label"].to_numpy().astype(np.int64)
    train, test = (np.flatnonzero(np.array(split) == name) for name in ("train", "test"))
    return Dataset(
        release.name, Samples(x.select(train), y[train], train), Samples(x.select(test), y[test], test), release.classes
    )


def open_parquet(path: Path, options: Options) -> Dataset:
    """Optional: a column original_index, `names.json` (fine_names, coarse_names, subpop_order), `*draws*.npz`."""
    names: dict[str, Any] = (
        read_object(path / "names.json", {}, "Remove it.") if (path / "names.json").is_file() else {}
    )
    parts = {}
    for part in ("train", "test"):
        files = sorted(path.glob(f"*{part}*.parquet"))
        if len(files) != 1:
            raise MissingFile(f"{path} has {len(files)} files *{part}*.parquet.", "Expected one.")
        parts[part] = _table(files[0], options, names)
    draws: dict[str, Array] = {}
    for file in sorted(path.glob("*draws*.npz")):
        draws |= read_arrays(file, "Expected arrays of positions.")
    n_classes = number_of_classes([samples.y for samples in parts.values()], path)
    class_names = names.get("coarse_names" if parts["train"].subclass is not None else "fine_names", [])
    complete = isinstance(class_names, list) and len(class_names) >= n_classes
    classes = [str(c) for c in (class_names if complete else range(n_classes))]
    return Dataset(path.name, parts["train"], parts["test"], classes, draws)


def _table(path: Path, options: Options, names: dict[str, Any]) -> Samples:
    table = read_parquet(path)
    fine = {"fine_label", "coarse_label"} <= set(table.column_names)
    if missing := {"image", *(() if fine else ("label",))} - set(table.column_names):
        raise BadInput(f"{path} lacks the column {', '.join(sorted(missing))}.", f"It has {table.column_names}.")

    def decoded(row: int, data: Any) -> Array:
        data = data.get("bytes") if isinstance(data, dict) else data
        if not isinstance(data, bytes):
            raise BadInput(f"{path}, row {row + 1}: {type(data).__name__}.", "Expected the bytes of an image.")
        with open_image(data, f"{path}, row {row + 1}:") as image:
            if image.mode != "RGB":
                raise BadInput(f"{path}, row {row + 1}: an image of mode {image.mode}.", "Expected RGB.")
            return np.asarray(as_rgb(image))

    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
        images = list(pool.map(decoded, range(len(table)), table["image"].to_pylist()))
    if len({i.shape for i in images}) != 1:
        raise BadInput(f"{path} has images of several sizes.", "Expected one size.")
    index = _numbers(path, table, "original_index") if "original_index" in table.column_names else np.arange(len(table))
    x = np.stack(images)
    if not fine:
        return Samples(x, _numbers(path, table, "label"), index)
    label = _numbers(path, table, "fine_label")
    if options.labels == "fine":
        return Samples(x, label, index)
    y, subclass = coarse(label, names.get("subpop_order"))
    return Samples(x, y, index, subclass)


def _numbers(path: Path, table: pa.Table, name: str) -> Array:
    """(N,) int64 of a column of integers. Raises BadInput."""
    column = table[name]
    if not pa.types.is_integer(column.type) or column.null_count:
        raise BadInput(f"{path}: {name} is {column.type}.", "Expected an integer in every row.")
    return column.to_numpy().astype(np.int64)


def cifar10(path: Path, options: Options) -> Dataset:
    """CIFAR-10: 50,000 + 10,000 images of 32 × 32, ten classes."""
    train, test = _load("CIFAR10", path, options)
    return Dataset("cifar10", _samples(train.data, train.targets), _samples(test.data, test.targets), train.classes)


def cifar100(path: Path, options: Options) -> Dataset:
    """CIFAR-100: twenty super-classes with sub-classes, or a hundred classes with `--labels fine`."""
    train, test = _load("CIFAR100", path, options)
    if options.labels == "fine":
        parts = [_samples(part.data, part.targets) for part in (train, test)]
        return Dataset("cifar100", parts[0], parts[1], train.classes)
    order = order_of(train.classes)
    parts = [_samples(part.data, *coarse(np.asarray(part.targets, np.int64), order)) for part in (train, test)]
    return Dataset("cifar100", parts[0], parts[1], list(COARSE))


def order_of(fine: Sequence[str]) -> list[list[int]]:
    """ORDER as numbers of CIFAR-100's fine classes."""
    number = {name: i for i, name in enumerate(fine)}
    return [[number[name] for name in group.split()] for group in ORDER.split(";")]


def _load(kind: str, path: Path, options: Options) -> list[Any]:
    """torchvision's training and test set. Raises MissingFile, DriftlineError."""
    import torchvision.datasets

    try:
        load = getattr(torchvision.datasets, kind)
        return [load(root=str(path), train=train, download=options.download) for train in (True, False)]
    except RuntimeError as error:
        raise MissingFile(
            f"{path} does not contain the complete {kind} ({error}).",
            "Expected its official files with matching checksums.",
            "Name their folder with --data-dir, or download them with --download.",
        ) from None
    except OSError as error:
        raise DriftlineError(
            f"{kind} cannot be downloaded ({error}).", "", "Put its official files into --data-dir."
        ) from None


def _samples(x: Any, y: Any, subclass: Labels | None = None) -> Samples:
    return Samples(np.asarray(x), np.asarray(y, np.int64), np.arange(len(y)), subclass)


def coarse(fine: Labels, order: Sequence[Sequence[int]] | None) -> tuple[Labels, Labels]:
    """Super-class of each fine label, and number of the sub-class within it. order: fine labels of each super-class.

    Raises MissingFile if there is no order.
    """
    if order is None:
        raise MissingFile("Coarse labels need the order of sub-classes.", "Expected names.json with subpop_order.")
    try:
        places = {int(label): (c, i) for c, group in enumerate(order) for i, label in enumerate(group)}
        pairs = np.array([places[int(label)] for label in fine], np.int64).reshape(-1, 2)
    except (LookupError, TypeError, ValueError) as error:
        raise BadArray(f"The order of sub-classes is not one of these labels ({reason(error)}).") from None
    return pairs[:, 0].copy(), pairs[:, 1].copy()
