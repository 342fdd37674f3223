"""Bases: labelled images to draw a shift sequence from."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from curate.ground.errors import BadInput, MissingFile
from stream_builder.shifts.base import Images, Labels
from stream_builder.stream import Array


@dataclass(frozen=True)
class Base:
    """train and test images (N, H, W, 3) uint8 with labels and original indices. draws: published draws by name
    (`t0_train` …: original indices in order), where the folder has them."""

    name: str
    train: tuple[Images, Labels, Array]
    test: tuple[Images, Labels, Array]
    classes: list[str]
    draws: Mapping[str, Array] = field(default_factory=dict)


def open_base(path: Path) -> Base:
    """A folder with `*_train.parquet` and `*_test.parquet` (columns image, label, optional original_index).

    Raises MissingFile or BadInput naming the file and what it lacks.
    """
    if not path.is_dir():
        raise MissingFile(f"There is no folder {path}.", "Expected Parquet files with columns image and label.")
    sides = {}
    for side in ("train", "test"):
        files = sorted(path.glob(f"*{side}*.parquet"))
        if len(files) != 1:
            raise MissingFile(f"{path} holds {len(files)} files *{side}*.parquet.", "Expected one.")
        sides[side] = _read(files[0])
    draws: dict[str, Array] = {}
    for file in sorted(path.glob("*draws*.npz")):
        with np.load(file, allow_pickle=False) as stored:
            draws |= {k: stored[k] for k in stored.files}
    n_classes = int(max(sides["train"][1].max(), sides["test"][1].max())) + 1
    return Base(path.name, sides["train"], sides["test"], [str(c) for c in range(n_classes)], draws)


def _read(path: Path) -> tuple[Images, Labels, Array]:
    from PIL import Image

    table = pq.read_table(path)
    if missing := {"image", "label"} - set(table.column_names):
        raise BadInput(f"{path} lacks the column {', '.join(sorted(missing))}.", f"It has {table.column_names}.")
    images = []
    for row, data in enumerate(table["image"].to_pylist()):
        try:
            with Image.open(io.BytesIO(data["bytes"] if isinstance(data, dict) else data)) as image:
                if image.mode != "RGB":
                    raise BadInput(f"{path}, row {row}: an image of mode {image.mode}.", "Expected RGB.")
                images.append(np.asarray(image))
        except OSError as error:
            raise BadInput(f"{path}, row {row}: no image ({error}).") from None
    if len({i.shape for i in images}) != 1:
        raise BadInput(f"{path} holds images of several sizes.", "Expected one size.")
    index = table["original_index"].to_numpy() if "original_index" in table.column_names else np.arange(len(table))
    return np.stack(images), table["label"].to_numpy().astype(np.int64), index.astype(np.int64)
