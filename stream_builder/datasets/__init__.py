"""Datasets: labelled images, features or texts that a composed stream draws from.

A dataset is opened by name (`cifar10`: read from `data_dir` or downloaded), by path (the content tells the format), or
as `package.module:Name`. A new dataset is one file here and one line in `DATASETS`, or an entry point
`driftline.datasets`; a new format is one function and one line in `_opener_of`.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from driftline.curate.core.errors import BadArray, BadConfig, BadPlugin, MissingFile
from driftline.curate.core.registry import Registry
from driftline.stream_builder.datasets.base import Dataset as Dataset
from driftline.stream_builder.datasets.base import Options as Options
from driftline.stream_builder.datasets.base import Samples as Samples
from driftline.stream_builder.step import check

DATASETS = Registry(
    "dataset", __name__, {"cifar10": ".images:cifar10", "cifar100": ".images:cifar100",
                          "banking77": ".texts:banking77", "clinc150": ".texts:clinc150"},
    group="datasets", further="a path, or package.module:Name",
)  # fmt: skip


def open_dataset(source: str | Path, options: Options | None = None) -> Dataset:
    """Open a dataset by path, by name, or as package.module:Name.

    Raises MissingFile, BadInput, UnknownName, BadPlugin; BadArray for wrong shapes, dtypes or labels.
    """
    options = options or Options()
    if options.labels not in (None, "fine", "coarse"):
        raise BadConfig(f"--labels is {options.labels!r}.", "Expected fine or coarse.")
    name, path = str(source), Path(source)
    if path.exists():
        dataset = _opener_of(path)(path, options)
    elif "/" in name or name.endswith(".npz"):
        raise MissingFile(f"{path} does not exist.", "Expected a dataset: a folder, a file or a name.")
    else:
        dataset = DATASETS.resolve(name)(options.data_dir or Path("data"), options)
    if not isinstance(dataset, Dataset):
        raise BadPlugin(f"The dataset {name!r} returned {type(dataset).__name__}.", "Expected a Dataset.")
    for samples, what in ((dataset.train, "train"), (dataset.test, "test")):
        if not len(samples):
            raise BadArray(f"{dataset.name} has no {what} samples.", "Expected at least one.")
        some = samples.x if isinstance(samples.x, np.ndarray) else samples.x[:1]  # lazy images: only the first
        check(some, samples.y[: len(some)], len(dataset.classes), f"{dataset.name}, {what}")
        if samples.y.min() < 0 or samples.y.max() >= len(dataset.classes):
            raise BadArray(
                f"{dataset.name}, {what}: labels from {samples.y.min()} to {samples.y.max()}.",
                f"Expected 0 … {len(dataset.classes) - 1}.",
            )
    return dataset


def _opener_of(path: Path) -> Callable[[Path, Options], Dataset]:
    """What opens the first format that a file or folder has by its content. Raises MissingFile."""
    from driftline.stream_builder.datasets import images, texts

    formats = (
        (path.is_file() and path.suffix == ".npz", images.open_arrays),
        ((path / "release.json").is_file() or any(path.glob("stages/*_publish/release")), images.open_release),
        (any(path.glob("*train*.parquet")), images.open_parquet),
        ((path / "cifar-10-batches-py").is_dir(), images.cifar10),
        ((path / "cifar-100-python").is_dir(), images.cifar100),
        (texts.has_texts(path), texts.open_texts),
        ((path / "train").is_dir(), images.open_folder),
    )
    for matches, opener in formats:
        if matches:
            return opener
    raise MissingFile(
        f"{path} has no known dataset format.",
        "Expected an .npz file, a table of texts, Parquet files named *train* and *test*, folders train/ and test/ (or "
        "val/) of class folders, a release, or CIFAR's own folder.",
    )
