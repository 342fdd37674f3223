"""A driftline release: its `split_0` gives train and test, whatever the bucket."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from curate.release import Release
from stream_builder.builders.release import encoded
from stream_builder.datasets import Base, Options, Side


def open_release(place: Path, options: Options) -> Base:
    """Images are decoded when drawn, to `options.size`."""
    release = Release.open(place)
    x = encoded(release, options.size)
    y = release.table["label"].to_numpy().astype(np.int64)
    sides = np.array(release.table["split_0"].to_pylist())
    train, test = (np.flatnonzero(sides == s) for s in ("train", "test"))
    return Base(
        release.name,
        Side(x.select(train), y[train], train),
        Side(x.select(test), y[test], test),
        release.classes,
    )
