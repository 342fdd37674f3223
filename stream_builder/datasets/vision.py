"""CIFAR-10, CIFAR-100, MNIST and Fashion-MNIST through torchvision: it checks their MD5 before it reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from curate.core.errors import DriftlineError, MissingFile
from stream_builder.datasets import Base, Options, Side, coarse
from stream_builder.shifts.base import Labels

# Sub-classes of CIFAR-100's twenty super-classes in the order in which Seq-to-Final's code introduces them [spec].
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


def cifar10(place: Path, options: Options) -> Base:
    """CIFAR-10: 50,000 + 10,000 images of 32 × 32, ten classes."""
    train, test = (_of("CIFAR10", place, options, train=side) for side in (True, False))
    return Base("cifar10", _side(train.data, train.targets), _side(test.data, test.targets), list(train.classes))


def cifar100(place: Path, options: Options) -> Base:
    """CIFAR-100: twenty super-classes with their sub-classes, or a hundred classes (labels: fine)."""
    train, test = (_of("CIFAR100", place, options, train=side) for side in (True, False))
    fine = list(train.classes)
    if options.labels == "fine":
        return Base("cifar100", _side(train.data, train.targets), _side(test.data, test.targets), fine)
    order = order_of(fine)
    sides = []
    for s in (train, test):
        y, sub = coarse(np.asarray(s.targets, np.int64), order)
        sides.append(_side(s.data, y, sub))
    return Base("cifar100", sides[0], sides[1], list(COARSE))


def mnist(place: Path, options: Options) -> Base:
    """MNIST: grey digits of 28 × 28, written into three equal channels."""
    return _grey("MNIST", "mnist", place, options)


def fashion_mnist(place: Path, options: Options) -> Base:
    """Fashion-MNIST: grey clothes of 28 × 28, written into three equal channels."""
    return _grey("FashionMNIST", "fashion-mnist", place, options)


def open_cifar(place: Path, options: Options) -> Base:
    """CIFAR's official folder, `cifar-10-batches-py` or `cifar-100-python`, below `place`."""
    return (cifar10 if (place / "cifar-10-batches-py").is_dir() else cifar100)(place, options)


def order_of(fine: Sequence[str]) -> list[list[int]]:
    """ORDER in numbers of CIFAR-100's fine classes."""
    number = {name: i for i, name in enumerate(fine)}
    return [[number[name] for name in group.split()] for group in ORDER.split(";")]


def _of(kind: str, place: Path, options: Options, train: bool) -> Any:
    import torchvision.datasets

    try:
        return getattr(torchvision.datasets, kind)(root=str(place), train=train, download=options.download)
    except RuntimeError as error:
        raise MissingFile(
            f"{place} holds no whole {kind} ({error}).",
            "Expected its official files, with their checksums.",
            "Name their folder with --data-dir, or fetch them with --download.",
        ) from None
    except OSError as error:
        raise DriftlineError(
            f"{kind} cannot be fetched ({error}).", "", "Put its official files into --data-dir."
        ) from None


def _grey(kind: str, name: str, place: Path, options: Options) -> Base:
    train, test = (_of(kind, place, options, train=side) for side in (True, False))
    sides = [_side(np.repeat(s.data.numpy()[..., None], 3, -1), s.targets.numpy()) for s in (train, test)]
    return Base(name, sides[0], sides[1], [str(c) for c in train.classes])


def _side(x: Any, y: Any, sub: Labels | None = None) -> Side:
    return Side(np.asarray(x), np.asarray(y, np.int64), np.arange(len(y)), sub)
