"""Arrays from outside, opened without reading them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from curate.core.errors import IntegrityError


def open_array(path: Path, kinds: str, shape: Sequence[int | None], way_out: str) -> npt.NDArray[Any]:
    """A memory-mapped .npy file.

    kinds: allowed kinds of its dtype, as in "iu". shape: expected; None is any length, and a last -1 any further
    dimensions. Raises IntegrityError naming the file.
    """
    if not path.is_file():
        raise IntegrityError(f"The file {path} is missing.", "", way_out)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy warns of headers that Python 2 wrote
            array: npt.NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # numpy raises nearly anything for a damaged header
        why = str(error).split("\n")[0][:200]
        raise IntegrityError(f"{path} cannot be read as an array ({why}).", "Expected a .npy file.", way_out) from None
    if array.dtype.kind not in kinds:
        raise IntegrityError(f"{path} has dtype {array.dtype}.", f"Expected kind {' or '.join(kinds)}.", way_out)
    known = list(shape[:-1] if shape and shape[-1] == -1 else shape)
    fits = len(array.shape) == len(known) or (shape[-1] == -1 and len(array.shape) > len(known))
    if not fits or any(a != b for a, b in zip(array.shape, known, strict=False) if b is not None):
        wanted = ", ".join("any" if n is None else "…" if n == -1 else str(n) for n in shape)
        raise IntegrityError(f"{path} has shape {array.shape}.", f"Expected ({wanted}).", way_out)
    return array
