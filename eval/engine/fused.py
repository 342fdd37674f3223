"""The linear head's training loop in C: the batch is never copied, X is read from memory once a step.

`kernel.c` is built with the package where there is a C compiler; elsewhere, for widths that are no multiple of 32, and
under `DRIFTLINE_KERNEL=off`, `linear.fit` does the same in torch. Tests hold the two against each other.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

LANES, CLASSES, ROWS = 32, 12, 32  # as in kernel.c: columns and classes are padded to these, rows of a block
Batches = Iterable[tuple[float, npt.NDArray[np.int64], npt.NDArray[np.int64]]]


@cache
def _library() -> Any:
    found = find_spec("eval.engine._kernel")
    if found is None or found.origin is None:
        return None
    library = ctypes.CDLL(found.origin)
    place, long, real = ctypes.c_void_p, ctypes.c_long, ctypes.c_float
    for name, places in (("driftline_step", 7), ("driftline_step_half", 8)):
        if hasattr(library, name):
            function = getattr(library, name)
            function.restype = None
            function.argtypes = [place] * 2 + [long] * 4 + [place] * places + [real] * 3
    return library


def fits(sources: Sequence[Any], half: bool) -> bool:
    """Whether the kernel is there and takes such tensors (N, D). half: needs a processor with bfloat16 products."""
    import torch

    wanted, width = torch.bfloat16 if half else torch.float32, sources[0].shape[1]
    if any(of.dtype is not wanted or of.shape[1] != width or of.device.type != "cpu" for of in sources):
        return False  # torch says what is wrong with them; C would read beyond them
    if os.environ.get("DRIFTLINE_KERNEL") == "off" or width % LANES or (library := _library()) is None:
        return False
    return not half or bool(library.driftline_has_half())


def train(
    params: Any, velocity: Any, sources: Any, labels: Any, batches: Batches, momentum: float, decay: float
) -> int:
    """SGD with momentum on float32 weights (C, D) and bias (C,), in place; returns the number of steps.

    sources: torch tensors (N, D), all float32 or all bfloat16: the data, then the memory where there is one; labels:
    int64 arrays (N,) of each. batches: learning rate, rows of the data and rows of the memory of each step.
    """
    import torch

    library = _library()
    half = sources[0].dtype is torch.bfloat16
    classes, width = params[0].shape
    padded = -(-classes // CLASSES) * CLASSES
    weights, moving, gradient = (np.zeros((padded, width), np.float32) for _ in range(3))
    bias, bias_moving, bias_gradient = (np.zeros(classes, np.float32) for _ in range(3))
    weights[:classes], bias[:] = params[0].numpy(), params[1].numpy()
    scores = np.empty((ROWS, padded), np.float32)
    rooms = [weights, bias, moving, bias_moving, gradient, bias_gradient, scores]
    rooms += [np.empty((padded, width), np.uint16)] if half else []
    places = [room.ctypes.data for room in rooms]
    step = library.driftline_step_half if half else library.driftline_step
    stride = width * sources[0].element_size()
    steps = 0
    for lr, *drawn in batches:
        parts = list(zip(sources, labels, drawn, strict=False))
        rows = np.concatenate([source.data_ptr() + here * stride for source, _, here in parts])
        y = np.concatenate([of[here] for _, of, here in parts])
        step(rows.ctypes.data, y.ctypes.data, len(y), width, classes, padded, *places, lr, momentum, decay)
        steps += 1
    params[0].copy_(torch.from_numpy(weights[:classes]))
    params[1].copy_(torch.from_numpy(bias))
    velocity[0].copy_(torch.from_numpy(moving[:classes]))
    velocity[1].copy_(torch.from_numpy(bias_moving))
    return steps
