"""An .npz file with train_x, train_y, test_x, test_y: images, features or embeddings of texts."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from driftline.curate.core.errors import BadArray, BadInput, reason
from driftline.curate.core.outside.arrays import number_of_classes, read_arrays
from driftline.stream_builder.datasets import Dataset, Format, Options, Samples


def open_arrays(path: Path, options: Options) -> Dataset:
    """Optional arrays: train_sub and test_sub (number of the sub-class within the class), classes or label_names."""
    arrays = read_arrays(path, "Expected arrays saved with numpy.savez.", skip_objects=True)
    if missing := {"train_x", "train_y", "test_x", "test_y"} - set(arrays):
        raise BadInput(
            f"{path} lacks {', '.join(sorted(missing))}.", f"It holds {', '.join(sorted(arrays)) or 'nothing'}."
        )
    parts = []
    for part in ("train", "test"):
        x, y = arrays[f"{part}_x"], arrays[f"{part}_y"]
        if y.ndim != 1 or x.ndim == 0 or len(x) != len(y) or y.dtype.kind not in "iu":
            raise BadArray(
                f"{part}_y in {path} has shape {y.shape} and dtype {y.dtype} for {len(x)} samples.",
                "Expected one integer per sample.",
            )
        subclass = arrays.get(f"{part}_sub")
        if subclass is not None and (subclass.shape != y.shape or subclass.dtype.kind not in "iu"):
            raise BadArray(f"{part}_sub in {path} has shape {subclass.shape}.", "Expected one integer per sample.")
        subclass = None if subclass is None else subclass.astype(np.int64)
        parts.append(Samples(x, y.astype(np.int64), np.arange(len(y)), subclass))
    n_classes = number_of_classes([samples.y for samples in parts], path)
    names = next((arrays[k] for k in ("classes", "label_names", "labels") if k in arrays), None)
    try:
        classes = [str(c) for c in names] if names is not None and names.ndim == 1 and len(names) >= n_classes else None
    except SystemError as error:  # a code point beyond Unicode
        problem = f"The names of classes in {path} are no text ({reason(error)})."
        raise BadArray(problem, "Expected numbers or texts.") from None
    return Dataset(path.stem, parts[0], parts[1], classes or [str(c) for c in range(n_classes)])


FORMAT = Format(lambda path: path.is_file() and path.suffix == ".npz", open_arrays)
