"""WebDataset tars named *train* and *test* (or *val*): KEY.jpg (or .png …) and KEY.cls, the label as a number."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from driftline.curate.core.errors import BadInput, MissingFile
from driftline.curate.core.outside.arrays import number_of_classes
from driftline.curate.core.outside.documents import read_text
from driftline.curate.core.outside.images import IMAGE_SUFFIXES
from driftline.stream_builder.datasets import Dataset, Format, Options, Samples
from driftline.stream_builder.lazy_images import LazyImages, as_locations, tar_members


def open_tars(path: Path, options: Options) -> Dataset:
    """Images are decoded when drawn, at `options.size`. Optional: class_names.txt, one name per line."""
    test_tars = sorted(path.glob("*test*.tar")) or sorted(path.glob("*val*.tar"))
    if not test_tars:
        raise MissingFile(f"{path} has tars *train*, but neither *test* nor *val*.", "Expected one of them.")
    train, test = (_samples(tars, options.size) for tars in (sorted(path.glob("*train*.tar")), test_tars))
    n_classes = number_of_classes([train.y, test.y], path)
    file = path / "class_names.txt"
    names = read_text(file).splitlines() if file.is_file() else []
    classes = names if len(names) >= n_classes else [str(c) for c in range(n_classes)]
    return Dataset(path.name, train, test, classes)


def _samples(tars: list[Path], size: int) -> Samples:
    locations, labels = [], []
    for number, tar in enumerate(tars):
        samples: dict[str, dict[str, tuple[int, int]]] = {}
        for name, offset, length in tar_members(tar):
            key, _, suffix = name.partition(".")
            kind = "image" if f".{suffix.lower()}" in IMAGE_SUFFIXES else suffix
            samples.setdefault(key, {})[kind] = (offset, length)
        with tar.open("rb") as file:
            for key, parts in samples.items():
                if not {"image", "cls"} <= set(parts):
                    raise BadInput(f"{tar}: the sample {key!r} has {sorted(parts)}.", "Expected an image and .cls.")
                offset, length = parts["cls"]
                file.seek(offset)
                text = file.read(length).decode("ascii", "replace").strip()
                if not re.fullmatch(r"[0-9]{1,18}", text):
                    raise BadInput(f"{tar}: {key}.cls contains {text[:20]!r}.", "Expected a number from 0.")
                labels.append(int(text))
                locations.append((number, *parts["image"]))
    x = LazyImages(tuple(tars), as_locations(locations), size, strict=True)
    return Samples(x, np.array(labels, np.int64), np.arange(len(labels)))


FORMAT = Format(lambda path: any(path.glob("*train*.tar")), open_tars)
