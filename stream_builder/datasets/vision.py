"""CIFAR-10 and CIFAR-100 through torchvision, which verifies their MD5 before reading."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from driftline.curate.core.errors import DriftlineError, MissingFile
from driftline.stream_builder.datasets import Dataset, Format, Options, Samples, coarse
from driftline.stream_builder.shifts.base import Labels

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


def open_cifar(path: Path, options: Options) -> Dataset:
    """CIFAR's official folder in `path`: `cifar-10-batches-py` or `cifar-100-python`."""
    return (cifar10 if (path / "cifar-10-batches-py").is_dir() else cifar100)(path, options)


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


def _is_cifar(path: Path) -> bool:
    return any((path / name).is_dir() for name in ("cifar-10-batches-py", "cifar-100-python"))


FORMAT = Format(_is_cifar, open_cifar)
