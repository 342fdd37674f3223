"""Arrays, in memory or in an `.npz` file → a stream."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from curate.core.errors import BadArray, BadInput, MissingFile
from stream_builder.stream import SPLITS, Array, Split, Step, Stream
from stream_builder.validate import check

KEYS = {"x", "y", "step", "time", "split", "id", "classes"}


def from_arrays(source: str | Path | Mapping[str, Array]) -> Stream:
    """source: an .npz file, or arrays by name.

    `x (N, …)` float16/float32 or uint8 `(N, H, W, 3)`; `y (N,)` integers from 0; optional `step (N,)` integers from 0,
    `time (N,)` seconds UTC, `split (N,)` of train, val and test, `id (N,)`, `classes (C,)`. The order within a step and
    split is kept.

    Raises MissingFile, and BadArray or BadInput naming the array and the first bad index.
    """
    if isinstance(source, Mapping):
        name, what, arrays = "arrays", "the arrays", {key: np.asarray(array) for key, array in source.items()}
    else:
        path = Path(source)
        name, what, arrays = path.stem, str(path), _load(path)
    if missing := {"x", "y"} - set(arrays):
        raise BadInput(
            f"{what}: {', '.join(sorted(missing))} is missing.", f"There is {', '.join(sorted(arrays)) or 'nothing'}."
        )
    if unknown := set(arrays) - KEYS:
        raise BadInput(
            f"{what}: unknown array {', '.join(sorted(unknown))}.", f"Expected only {', '.join(sorted(KEYS))}."
        )
    x, y = arrays["x"], arrays["y"]
    n = len(y) if y.ndim else 0
    if n == 0 or len(x) == 0:
        raise BadArray(f"{what}: no samples.", "Expected at least one.")
    if x.dtype == np.float64:
        raise BadArray(f"{what}: x has dtype float64.", "Expected float16 or float32.", "Use x.astype(numpy.float32).")
    classes = [str(c) for c in arrays["classes"]] if "classes" in arrays else [str(c) for c in range(int(y.max()) + 1)]
    check(x, y, len(classes), what)
    for key in KEYS - {"x", "y", "classes"}:
        if key in arrays and arrays[key].shape != (n,):
            raise BadArray(f"{what}: {key} has shape {arrays[key].shape}.", f"Expected ({n},).")
    step = arrays.get("step", np.zeros(n, np.int64))
    if step.dtype.kind not in "iu" or (step < 0).any():
        raise BadArray(f"{what}: step has dtype {step.dtype} and minimum {step.min()}.", "Expected integers from 0.")
    split = arrays.get("split", np.full(n, "train")).astype(np.str_)
    unknown_splits = np.flatnonzero(~np.isin(split, SPLITS))
    if len(unknown_splits):
        first = int(unknown_splits[0])
        raise BadArray(f"{what}: split is {str(split[first])!r} at index {first}.", "Expected train, val or test.")
    ids = arrays.get("id", np.arange(n)).astype(np.str_)
    time = arrays["time"].astype(np.int64) if "time" in arrays else None
    steps = []
    for index, value in enumerate(np.unique(step).tolist()):
        splits = {}
        for part in SPLITS:
            rows = np.flatnonzero((step == value) & (split == part))
            if len(rows):
                splits[part] = Split(x[rows], y[rows].astype(np.int64), ids[rows], None if time is None else time[rows])
        steps.append(Step(index, str(value), splits))
    facts = {"from": "arrays"} | ({} if isinstance(source, Mapping) else {"file": path.name})
    return Stream(name, steps, classes, facts=facts)


def _load(path: Path) -> dict[str, Array]:
    if not path.is_file():
        raise MissingFile(f"There is no file {path}.", "Expected an .npz file with arrays x and y.")
    try:
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}
    except (ValueError, OSError, EOFError, BadZipFile) as error:
        expected = "Expected arrays saved with numpy.savez, without Python objects."
        raise BadInput(f"{path} cannot be read as .npz ({error}).", expected) from None
