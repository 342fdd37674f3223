"""An .npz file with train_x, train_y, test_x, test_y: images, features or embeddings of texts."""

from __future__ import annotations

from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from curate.core.errors import BadArray, BadInput
from stream_builder.datasets import Base, Options, Side
from stream_builder.stream import Array


def open_arrays(place: Path, options: Options) -> Base:
    """Optional: train_sub and test_sub (number of the sub-class within the class), classes or label_names."""
    try:
        with np.load(place, allow_pickle=False) as file:
            arrays: dict[str, Array] = {}
            for key in file.files:
                try:
                    arrays[key] = file[key]
                except ValueError:
                    continue  # an array of objects: notes beside the data, never read
    except (ValueError, OSError, EOFError, BadZipFile) as error:
        raise BadInput(
            f"{place} cannot be read as .npz ({error}).", "Expected arrays saved with numpy.savez."
        ) from None
    if missing := {"train_x", "train_y", "test_x", "test_y"} - set(arrays):
        raise BadInput(
            f"{place} lacks {', '.join(sorted(missing))}.", f"It holds {', '.join(sorted(arrays)) or 'nothing'}."
        )
    sides = []
    for side in ("train", "test"):
        x, y = arrays[f"{side}_x"], arrays[f"{side}_y"]
        if y.ndim != 1 or len(x) != len(y) or y.dtype.kind not in "iu":
            raise BadArray(
                f"{side}_y in {place} has shape {y.shape} and dtype {y.dtype} for {len(x)} samples.",
                "Expected one integer each.",
            )
        sub = arrays.get(f"{side}_sub")
        sides.append(Side(x, y.astype(np.int64), np.arange(len(y)), None if sub is None else sub.astype(np.int64)))
    n_classes = int(max(s.y.max(initial=0) for s in sides)) + 1
    named = next((arrays[k] for k in ("classes", "label_names", "labels") if k in arrays), None)
    classes = [str(c) for c in named] if named is not None and len(named) >= n_classes else None
    return Base(place.stem, sides[0], sides[1], classes or [str(c) for c in range(n_classes)])
