"""A folder with `*train*.parquet` and `*test*.parquet`: columns image and label, or fine_label and coarse_label."""

from __future__ import annotations

import io
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pyarrow.parquet as pq

from curate.core.atomic_io import read_json
from curate.core.errors import BadInput, MissingFile
from stream_builder.datasets import Dataset, Format, Options, Samples, coarse
from stream_builder.stream import Array

THREADS = 8  # Pillow decodes without Python's lock


def open_parquet(path: Path, options: Options) -> Dataset:
    """Optional: a column original_index, `names.json` (fine_names, coarse_names, subpop_order), `*draws*.npz`."""
    names: dict[str, Any] = read_json(path / "names.json") if (path / "names.json").is_file() else {}
    parts = {}
    for part in ("train", "test"):
        files = sorted(path.glob(f"*{part}*.parquet"))
        if len(files) != 1:
            raise MissingFile(f"{path} has {len(files)} files *{part}*.parquet.", "Expected one.")
        parts[part] = _read(files[0], options, names)
    draws: dict[str, Array] = {}
    for file in sorted(path.glob("*draws*.npz")):
        try:
            with np.load(file, allow_pickle=False) as stored:
                draws |= {k: stored[k] for k in stored.files}
        except (ValueError, OSError, EOFError, BadZipFile) as error:
            raise BadInput(f"{file} cannot be read as .npz ({error}).", "Expected arrays of positions.") from None
    n_classes = int(max(samples.y.max(initial=0) for samples in parts.values())) + 1
    known = names.get("coarse_names" if parts["train"].subclass is not None else "fine_names", [])
    classes = [str(c) for c in known] if len(known) >= n_classes else [str(c) for c in range(n_classes)]
    return Dataset(path.name, parts["train"], parts["test"], classes, draws)


def _read(path: Path, options: Options, names: dict[str, Any]) -> Samples:
    from PIL import Image

    table = pq.read_table(path)
    fine = {"fine_label", "coarse_label"} <= set(table.column_names)
    if missing := {"image", *(() if fine else ("label",))} - set(table.column_names):
        raise BadInput(f"{path} lacks the column {', '.join(sorted(missing))}.", f"It has {table.column_names}.")

    def decoded(row: int, data: Any) -> Array:
        try:
            with Image.open(io.BytesIO(data["bytes"] if isinstance(data, dict) else data)) as image:
                if image.mode != "RGB":
                    raise BadInput(f"{path}, row {row}: an image of mode {image.mode}.", "Expected RGB.")
                return np.asarray(image)
        except OSError as error:
            raise BadInput(f"{path}, row {row}: cannot be decoded ({error}).") from None

    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
        images = list(pool.map(decoded, range(len(table)), table["image"].to_pylist()))
    if len({i.shape for i in images}) != 1:
        raise BadInput(f"{path} has images of several sizes.", "Expected one size.")
    index = table["original_index"].to_numpy() if "original_index" in table.column_names else np.arange(len(table))
    x = np.stack(images)
    if not fine:
        return Samples(x, table["label"].to_numpy().astype(np.int64), index.astype(np.int64))
    label = table["fine_label"].to_numpy().astype(np.int64)
    if options.labels == "fine":
        return Samples(x, label, index.astype(np.int64))
    y, subclass = coarse(label, names.get("subpop_order"))
    return Samples(x, y, index.astype(np.int64), subclass)


FORMAT = Format(lambda path: any(path.glob("*train*.parquet")), open_parquet)
