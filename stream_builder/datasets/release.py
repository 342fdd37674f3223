"""A driftline release: `split_0` gives train and test samples, from all buckets together."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from driftline.curate.release import Release
from driftline.stream_builder.builders.release import release_images
from driftline.stream_builder.datasets import Dataset, Format, Options, Samples


def open_release(path: Path, options: Options) -> Dataset:
    """Images are decoded when drawn, at `options.size`. path: of the release, or of the run that published it."""
    release = Release.open(path)
    x = release_images(release, options.size)
    y = release.table["label"].to_numpy().astype(np.int64)
    split = np.array(release.table["split_0"].to_pylist())
    train, test = (np.flatnonzero(split == name) for name in ("train", "test"))
    return Dataset(
        release.name,
        Samples(x.select(train), y[train], train),
        Samples(x.select(test), y[test], test),
        release.classes,
    )


def _is_release(path: Path) -> bool:
    return (path / "release.json").is_file() or any(path.glob("stages/*_publish/release"))


FORMAT = Format(_is_release, open_release)
