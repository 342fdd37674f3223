"""Arrays in an `.npz` file → a stream."""

from __future__ import annotations

from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from curate.core.errors import BadArray, BadInput, MissingFile
from stream_builder.stream import SPLITS, Array, Split, Step, Stream
from stream_builder.validate import check

KEYS = {"x", "y", "step", "time", "split", "id", "classes"}


def from_arrays(path: Path) -> Stream:
    """`x (N, …)` float16/float32 or uint8 `(N, H, W, 3)`; `y (N,)` integers from 0; optional `step`, `time`,
    `split`, `id`, `classes`. Order within a step and split is kept and has meaning.

    Raises BadArray or BadInput naming the key and the first bad index.
    """
    if not path.is_file():
        raise MissingFile(f"There is no file {path}.", "Expected an .npz file with arrays x and y.")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays: dict[str, Array] = {k: file[k] for k in file.files}
    except (ValueError, OSError, EOFError, BadZipFile) as error:
        raise BadInput(
            f"{path} cannot be read as .npz ({error}).", "Expected arrays saved with numpy.savez, no objects."
        ) from None
    if missing := {"x", "y"} - set(arrays):
        raise BadInput(
            f"{path} lacks {', '.join(sorted(missing))}.",
            f"It holds {', '.join(sorted(arrays)) or 'nothing'}.",
        )
    if unknown := set(arrays) - KEYS:
        raise BadInput(f"{path} holds {', '.join(sorted(unknown))}.", f"Expected only {', '.join(sorted(KEYS))}.")
    x, y = arrays["x"], arrays["y"]
    n = len(y) if y.ndim else 0
    if n == 0 or len(x) == 0:
        raise BadArray(f"{path} holds no samples.", "Expected at least one.")
    if x.dtype == np.float64:
        raise BadArray(
            f"x in {path} has dtype float64.", "Expected float16 or float32.", "Save x.astype(numpy.float32)."
        )
    classes = [str(c) for c in arrays["classes"]] if "classes" in arrays else [str(c) for c in range(int(y.max()) + 1)]
    check(x, y, len(classes), str(path))
    for key in KEYS - {"x", "y", "classes"}:
        if key in arrays and arrays[key].shape != (n,):
            raise BadArray(f"{key} in {path} has shape {arrays[key].shape}.", f"Expected ({n},).")
    step = arrays.get("step", np.zeros(n, np.int64))
    if step.dtype.kind not in "iu" or (step < 0).any():
        raise BadArray(f"step in {path} has dtype {step.dtype} and minimum {step.min()}.", "Expected integers from 0.")
    side = arrays.get("split", np.full(n, "train")).astype(np.str_)
    strange = np.flatnonzero(~np.isin(side, SPLITS))
    if len(strange):
        raise BadArray(
            f"split in {path} is {str(side[strange[0]])!r} at index {strange[0]}.", "Expected train, val or test."
        )
    ids = arrays.get("id", np.arange(n)).astype(np.str_)
    time = arrays["time"].astype(np.int64) if "time" in arrays else None
    steps = []
    for index, value in enumerate(np.unique(step).tolist()):
        splits = {}
        for name in SPLITS:
            here = np.flatnonzero((step == value) & (side == name))
            if len(here):
                splits[name] = Split(x[here], y[here].astype(np.int64), ids[here], None if time is None else time[here])
        steps.append(Step(index, str(value), splits))
    return Stream(path.stem, steps, classes, facts={"from": "arrays", "file": path.name})
