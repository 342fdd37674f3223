"""Checks of arrays before they become a stream: learners must be able to train on them."""

import numpy as np

from driftline.curate.core.errors import BadArray
from driftline.stream_builder.step import Array


def check(x: Array, y: Array, n_classes: int, what: str) -> None:
    """Raise BadArray for wrong shapes, dtypes, labels or infinite values, naming the first bad index."""
    if y.ndim != 1 or len(x) != len(y):
        raise BadArray(f"{what}: x has {len(x)} samples and y has shape {y.shape}.", "Expected y of shape (N,).")
    if y.dtype.kind not in "iu":
        raise BadArray(f"{what}: y has dtype {y.dtype}.", "Expected integers from 0.")
    bad = np.flatnonzero((y < 0) | (y >= n_classes))
    if len(bad):
        raise BadArray(f"{what}: label {y[bad[0]]} at index {bad[0]}.", f"Expected 0 … {n_classes - 1}.")
    if x.dtype.kind == "U":
        if x.ndim != 1:
            raise BadArray(f"{what}: texts of shape {x.shape}.", "Expected one text per sample, (N,).")
    elif x.dtype == np.uint8:
        if x.ndim != 4 or x.shape[-1] != 3:
            raise BadArray(
                f"{what}: uint8 x of shape {x.shape}.",
                "Expected images (N, H, W, 3).",
                "Use x.transpose(0, 2, 3, 1)." if x.ndim == 4 and x.shape[1] == 3 else "Convert grey or RGBA to RGB.",
            )
    elif x.dtype in (np.float16, np.float32):
        for start in range(0, len(x), 65_536):
            block = x[start : start + 65_536]
            finite = np.isfinite(block).reshape(len(block), -1).all(1)
            if not finite.all():
                raise BadArray(
                    f"{what}: x at index {start + int(np.argmin(finite))} holds NaN or infinity.",
                    "Expected finite numbers.",
                )
        if x.ndim < 2:
            raise BadArray(f"{what}: x has shape {x.shape}.", "Expected (N, D) features.")
    else:
        raise BadArray(
            f"{what}: x has dtype {x.dtype}.",
            "Expected float16 or float32 features, uint8 images (N, H, W, 3), or texts (N,).",
        )
