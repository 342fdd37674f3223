"""A folder with `*train*.parquet` and `*test*.parquet`: columns image and label, or fine_label and coarse_label."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from driftline.curate.core.atomic_io import read_object
from driftline.curate.core.errors import BadInput, MissingFile
from driftline.curate.core.outside.arrays import number_of_classes, read_arrays
from driftline.curate.core.outside.images import as_rgb, open_image
from driftline.curate.core.outside.tables import read_parquet
from driftline.stream_builder.datasets import Dataset, Format, Options, Samples, coarse
from driftline.stream_builder.stream import Array

THREADS = 8  # Pillow decodes without Python's lock


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
        parts[part] = _read(files[0], options, names)
    draws: dict[str, Array] = {}
    for file in sorted(path.glob("*draws*.npz")):
        draws |= read_arrays(file, "Expected arrays of positions.")
    n_classes = number_of_classes([samples.y for samples in parts.values()], path)
    class_names = names.get("coarse_names" if parts["train"].subclass is not None else "fine_names", [])
    complete = isinstance(class_names, list) and len(class_names) >= n_classes
    classes = [str(c) for c in (class_names if complete else range(n_classes))]
    return Dataset(path.name, parts["train"], parts["test"], classes, draws)


def _read(path: Path, options: Options, names: dict[str, Any]) -> Samples:
    table = read_parquet(path)
    fine = {"fine_label", "coarse_label"} <= set(table.column_names)
    if missing := {"image", *(() if fine else ("label",))} - set(table.column_names):
        raise BadInput(f"{path} lacks the column {', '.join(sorted(missing))}.", f"It has {table.column_names}.")

    def decoded(row: int, data: Any) -> Array:
        data = data.get("bytes") if isinstance(data, dict) else data
        if not isinstance(data, bytes):
            raise BadInput(f"{path}, row {row}: {type(data).__name__}.", "Expected the bytes of an image.")
        with open_image(data, f"{path}, row {row}:") as image:
            if image.mode != "RGB":
                raise BadInput(f"{path}, row {row}: an image of mode {image.mode}.", "Expected RGB.")
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


FORMAT = Format(lambda path: any(path.glob("*train*.parquet")), open_parquet)
