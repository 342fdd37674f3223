"""A data frame of labelled samples without time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from driftline.curate.core.errors import BadConfig, BadInput
from driftline.curate.core.group_split import draw_sides
from driftline.curate.core.outside.images import as_rgb
from driftline.curate.core.seeding import rng_for
from driftline.stream_builder.builders.table import samples_of, table_of
from driftline.stream_builder.datasets import Dataset, Samples
from driftline.stream_builder.importers.dated import texts_of
from driftline.stream_builder.stream import Array


def open_table(frame: Any, x: str | Sequence[str], label: str, test_share: float, seed: int) -> Dataset:
    """x: the column of pictures, else as `from_table` has it. A random `test_share` of each class becomes the test."""
    if not hasattr(frame, "assign"):
        raise BadInput(f"The dataset is {type(frame).__name__}.", "Expected a path, a name or a data frame.")
    if not 0 < test_share < 1:
        raise BadConfig(f"test_share is {test_share}.", "Expected a share between 0 and 1.")
    wanted = [x] if isinstance(x, str) else list(x)
    plain = frame.rename(columns=str)
    for name in (*wanted, label):
        if (columns := list(plain.columns)).count(name) != 1:
            problem = f"The table has {'more than one' if name in columns else 'no'} column {name!r}."
            raise BadInput(problem, f"It has {', '.join(columns)}.")
    if not len(plain):
        raise BadInput("The table has no rows.", "Expected one a sample.")
    names = texts_of(table_of(plain[[label]])[label].to_pylist(), _row_of, label)
    classes = sorted(set(names))
    number = {name: i for i, name in enumerate(classes)}
    y = np.array([number[name] for name in names], np.int64)
    cells = plain[wanted[0]].tolist() if len(wanted) == 1 else []
    pictured = any(isinstance(cell, Image.Image) or np.ndim(cell) > 1 for cell in cells[:1])
    values = _pictures(cells, wanted[0]) if pictured else samples_of(table_of(plain[wanted]), wanted, _row_of)
    test = draw_sides((y,), np.arange(len(y)), test_share, rng_for(seed, "test"))
    train, tests = (Samples(values[rows], y[rows], rows) for rows in map(np.flatnonzero, (~test, test)))
    return Dataset("table", train, tests, classes)


def _row_of(row: int) -> str:
    return f"the table, row {row}"


def _pictures(cells: Sequence[Any], column: str) -> Array:
    """(N, H, W, 3) uint8 of images of Pillow or arrays."""
    pictures = [np.asarray(as_rgb(cell) if isinstance(cell, Image.Image) else cell) for cell in cells]
    expected = "Expected pictures of one size: images of Pillow, or arrays (H, W, 3) of uint8."
    for row, picture in enumerate(pictures):
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
            raise BadInput(f"{_row_of(row)}: {column} has shape {picture.shape}, dtype {picture.dtype}.", expected)
        if picture.shape != pictures[0].shape:
            sizes = f"{picture.shape}, and {pictures[0].shape} in row 0"
            raise BadInput(f"{_row_of(row)}: {column} has shape {sizes}.", expected)
    return np.stack(pictures)
