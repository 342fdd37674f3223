"""Vectors of length 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def unit(x: npt.NDArray[Any], dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
    """x (N, D) or (D,), scaled to length 1 in its own precision, as `dtype`; vectors of zeros stay zero.

    >>> unit(np.array([[3.0, 4.0], [0.0, 0.0]]), np.float64).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    lengths = np.linalg.norm(x, axis=None if x.ndim == 1 else 1, keepdims=True)
    return np.asarray(x / np.maximum(lengths, 1e-12), dtype)
