"""C kernels: training loop of the linear head (no copy of the batch, X is read once per step), update of any network's
weights, and augmentation of images.

`kernel.c` is built with the package if there is a C compiler. Torch does the same without it, with
`DRIFTLINE_KERNEL=off`, and for layers that torch multiplies as fast (`suits`). Tests compare the two.
"""

import ctypes
import os
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadConfig
from driftline.curate.core.late import torch

# As in kernel.c: columns and classes are padded to the first two, rows of a block, columns behind a row of weights.
LANES, CLASSES, ROWS, BEHIND = 32, 12, 32, 32
SIDE = 16  # classes of AMX are padded to it, as in amx.h
WEIGHTS = 200_000  # of a layer that trains in the kernel: three arrays of them stay in the second-level cache
STEPS = 64  # of training in one call of the library
KINDS = ("plain", "avx2", "avx512", "avx512_bf16", "amx")  # of products, as kernel.c numbers them
HALF, AMX = KINDS.index("avx512_bf16"), KINDS.index("amx")
VARIABLE = "DRIFTLINE_KERNEL"
Batches = Iterable[tuple[float, npt.NDArray[np.int64], npt.NDArray[np.int64]]]


@cache
def library() -> Any:
    """The library built from kernel.c and normalise.c, or None. One of another version or system counts as none. Its
    functions take addresses, numbers of elements and numbers, and return nothing, but for `driftline_best_kind`."""
    spec = find_spec("driftline.eval.engine._kernel")
    if spec is None or spec.origin is None:
        return None
    try:
        library = ctypes.CDLL(spec.origin)
    except OSError:
        return None
    if not hasattr(library, "driftline_steps_float"):
        return None
    place, long, real, whole = ctypes.c_void_p, ctypes.c_long, ctypes.c_float, ctypes.c_int
    for name, arguments in {
        "steps_float": [whole, *[place] * 4, *[long] * 4, *[place] * 7, *[real] * 2],
        "steps_half": [whole, *[place] * 4, *[long] * 4, *[place] * 8, *[real] * 2],
        "gradient_of": [whole, *[place] * 2, *[long] * 5, *[place] * 5],
        "gradient_half": [whole, *[place] * 2, *[long] * 5, *[place] * 6],
        "descend": [*[place] * 3, long, *[real] * 3],
        "descend_rounded": [*[place] * 4, long, *[real] * 3],
        "show": [*[place] * 2, *[long] * 3, *[place] * 4],
        "moments": [place, long, long, place, place, whole],
        "scaled": [place, long, long, place, place, whole, place, whole],
        "sums_back": [place, place, long, long, place, place, whole, place, place, whole],
        "scaled_back": [place, place, long, long, *[place] * 4, whole, place, whole],
        "pooled": [place, *[long] * 4, *[place] * 4, whole],
        "pooled_sums": [*[place] * 3, *[long] * 4, *[place] * 3, whole],
        "pooled_back": [*[place] * 3, *[long] * 4, *[place] * 5, whole],
    }.items():
        if hasattr(library, f"driftline_{name}"):
            function = getattr(library, f"driftline_{name}")
            function.restype, function.argtypes = None, arguments
    return library


def kind() -> str:
    """Which products train linear layers on this processor: one of KINDS, or "torch".

    "avx512_bf16" and "amx" multiply bfloat16 so, and float32 like "avx512"; "avx2" and less leave bfloat16 to torch.
    `DRIFTLINE_KERNEL` chooses another one than the best; "off" is torch for everything here. Without AVX2, torch is the
    default: there it was not measured to be slower. Raises BadConfig for a value that this processor does not have.
    """
    wanted = os.environ.get(VARIABLE, "") or "auto"
    best = -1 if library() is None else library().driftline_best_kind()
    if wanted == "auto":
        return KINDS[best] if best > 0 else "torch"
    if wanted == "off":
        return "torch"
    if wanted in KINDS and (best < 0 or KINDS.index(wanted) <= best):
        return wanted if best >= 0 else "torch"
    here = ", ".join(["auto", "off", *KINDS[: best + 1]])
    raise BadConfig(f"{VARIABLE} is {wanted!r}.", f"Expected one of {here} on this processor.")


def ready(*tensors: Any) -> bool:
    """Whether the library is available and the tensors are contiguous and on the CPU."""
    if os.environ.get(VARIABLE) == "off" or library() is None:
        return False
    return all(t.device.type == "cpu" and t.is_contiguous() for t in tensors)


def has_half() -> bool:
    """Whether the library is available and the processor multiplies bfloat16."""
    return kind() in KINDS[HALF:]


def suits(width: int, classes: int, batch: int | None = None, tiles: bool = False, epochs: int = 100) -> bool:
    """Whether the kernel is faster than torch for this shape, on AVX2 and AVX-512 alike.

    batch: of a single gradient, None for a whole training, which saves torch's calls, too. tiles: bfloat16 by AMX.
    epochs: of a training. Padding costs: X is copied, which some epochs pay for, and it and the classes get larger. The
    weights must stay in the cache. X that stays there is no slower where it is read twice, as torch reads it."""
    whole, wide = width % LANES == 0, width >= 2 * LANES
    if batch is None and whole:
        return classes <= (5 if wide else 2) * CLASSES and classes * width <= WEIGHTS
    if batch is None:
        return 2 < classes <= (2 if wide else 1) * CLASSES and epochs >= 8
    if tiles:
        return whole and classes <= 3 * CLASSES and width >= 256 and batch >= 64
    return whole and CLASSES - 2 <= classes <= CLASSES and batch >= 256 and batch * width >= 1 << 19


def descend(weights: Any, velocity: Any, gradient: Any, lr: float, momentum: float, decay: float) -> bool:
    """One step of SGD with momentum, in place and in one pass; False if the kernel does not support the tensors."""
    three = (weights, velocity, gradient)
    if any(t.dtype is not torch.float32 for t in three) or not ready(*three):
        return False
    library().driftline_descend(*(t.data_ptr() for t in three), weights.numel(), lr, momentum, decay)
    return True


def descend_rounded(
    weights: Any, velocity: Any | None, gradient: Any, rounded: Any, lr: float, momentum: float, decay: float
) -> bool:
    """Like `descend`, for a gradient in bfloat16; `rounded` becomes the new weights in bfloat16. velocity: None without
    momentum."""
    if not ready(weights, gradient, rounded, *([] if velocity is None else [velocity])):
        return False
    places = (0 if velocity is None else velocity.data_ptr(), gradient.data_ptr(), rounded.data_ptr())
    library().driftline_descend_rounded(weights.data_ptr(), *places, weights.numel(), lr, momentum, decay)
    return True


def show(x: Any, draws: npt.NDArray[np.float32], scale: Sequence[float], shift: Sequence[float]) -> Any:
    """Augmented and normalised: x (B, H, W, 3) uint8 → (B, 3, H, W) float32. draws: (B, 5) of `deep.draw`. scale,
    shift: factor of the bytes of each channel, and summand."""
    n, height, width, _ = x.shape
    out = torch.empty((n, 3, height, width))
    work = np.empty(3 * width, np.int32)
    factors, summands = np.array(scale, np.float32), np.array(shift, np.float32)
    places = (factors.ctypes.data, summands.ctypes.data, out.data_ptr(), work.ctypes.data)
    library().driftline_show(x.data_ptr(), draws.ctypes.data, n, height, width, *places)
    return out


def fits(sources: Sequence[Any], half: bool, classes: int = 2, batch: int | None = None, epochs: int = 100) -> bool:
    """Whether the kernel is available, supports these tensors (N, D), and is faster than torch. half: needs bfloat16
    products; classes: of the layer; batch, epochs: as for `suits`."""
    wanted, width = torch.bfloat16 if half else torch.float32, sources[0].shape[1]
    if any(x.dtype is not wanted or x.shape[1] != width or x.device.type != "cpu" for x in sources):
        return False  # torch raises an error for them; C would read out of bounds
    if not suits(width, classes, batch, half and kind() == "amx", epochs) or kind() == "torch":
        return False
    return not half or has_half()


def padded(x: Any) -> Any:
    """x (N, D) with zero columns up to a multiple of LANES; x itself if it has one. Contiguous."""
    missing = -x.shape[1] % LANES
    return (torch.nn.functional.pad(x, (0, missing)) if missing else x).contiguous()


def gradient(params: Any, x: Any, y: Any) -> Any:
    """Gradient of the mean cross-entropy on contiguous x (B, D) float32 or bfloat16, y (B,) int64, in float32
    weights (C, D) and bias (C,)."""
    kernel, half = library(), x.dtype is torch.bfloat16
    x = padded(x)
    products = KINDS.index(kind())
    weights, bias, scores, *work = room(params, x, products)
    result, slope = torch.empty_like(weights), torch.empty_like(bias)
    rows = x.data_ptr() + np.arange(len(y)) * (x.shape[1] * x.element_size())
    places = [tensor.data_ptr() for tensor in (weights, bias, result, slope, scores, *work)]
    sizes = [len(y), len(y), x.shape[1], len(bias), len(weights)]
    function = kernel.driftline_gradient_half if half else kernel.driftline_gradient_of
    function(products, rows.ctypes.data, y.data_ptr(), *sizes, *places)
    return [result[: len(bias), : params[0].shape[1]].contiguous(), slope]


def aligned(shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """An array in torch's memory, which begins at whole lines of the cache: rows of numpy's lie across them, and the
    kernel takes 12 % longer."""
    array: npt.NDArray[np.float32] = torch.empty(shape).numpy()
    return array


def room(params: Any, x: Any, products: int) -> list[Any]:
    """Weights (classes and columns padded with zeros) and bias, in memory of their own, then room for the scores of a
    block, and for what bfloat16 needs if x, padded, is of it. products: number of their kind."""
    half = x.dtype is torch.bfloat16
    multiple, copies, more = (SIDE, 3, 2 * SIDE * ROWS) if half and products == AMX else (CLASSES, 1, 0)
    classes, features = params[0].shape
    weights = torch.zeros((-(-classes // multiple) * multiple, x.shape[1] + BEHIND))
    weights[:classes, :features] = params[0]
    places = [weights, params[1].clone(), torch.empty((len(weights), ROWS))]
    return places + [torch.empty(copies * weights.numel() + more, dtype=torch.bfloat16)] * half


def train(
    params: Any, velocity: Any, sources: Any, labels: Any, batches: Batches, momentum: float, decay: float
) -> int:
    """SGD with momentum on float32 weights (C, D) and bias (C,), in place; returns the number of steps.

    sources: torch tensors (N, D), all float32 or all bfloat16: the data, then the memory if there is one; labels: int64
    arrays (N,) of each. batches: learning rate, rows of the data and rows of the memory of each step.
    """
    kernel = library()
    half = sources[0].dtype is torch.bfloat16
    sources = [padded(x) for x in sources]
    products = KINDS.index(kind())
    weights, bias, scores, *work = room(params, sources[0], products)
    moving, bias_moving = torch.zeros_like(weights), torch.zeros_like(bias)
    gradient, bias_gradient = torch.zeros_like(weights), torch.empty_like(bias)
    arrays = [weights, bias, moving, bias_moving, gradient, bias_gradient, scores, *work]
    places = [array.data_ptr() for array in arrays]
    run = kernel.driftline_steps_half if half else kernel.driftline_steps_float
    stride = sources[0].shape[1] * sources[0].element_size()
    starts = [source.data_ptr() for source in sources]
    done, drawn = 0, iter(batches)
    while steps := list(islice(drawn, STEPS)):
        parts = [list(zip(starts, labels, each, strict=False)) for _, *each in steps]
        rows = np.concatenate([start + part * stride for step in parts for start, _, part in step])
        y = np.concatenate([target[part] for step in parts for _, target, part in step])
        sizes = np.array([sum(len(part) for *_, part in step) for step in parts], np.int64)
        rates = np.array([rate for rate, *_ in steps], np.float32)
        pointers = [array.ctypes.data for array in (rows, y, sizes, rates)]
        run(products, *pointers, len(steps), sources[0].shape[1], len(bias), len(weights), *places, momentum, decay)
        done += len(steps)
    classes, features = params[0].shape
    params[0].copy_(weights[:classes, :features])
    params[1].copy_(bias)
    velocity[0].copy_(moving[:classes, :features])
    velocity[1].copy_(bias_moving)
    return done
