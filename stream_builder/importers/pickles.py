"""Pickles from outside, read without running code: numbers, texts, lists, dictionaries, NumPy arrays, torch tensors.

A pickle names the functions that rebuild its objects. Here a name stands for one of the few functions below, which
make arrays with checked sizes; any other name is refused before anything is called. Tensors are read by torch, weights
only, and become arrays.
"""

import io
import math
import pickle
import pickletools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadInput, MissingFile, reason
from driftline.curate.foreign.arrays import check_weights
from driftline.curate.foreign.limits import RATIO, UNPACKED

Array = npt.NDArray[Any]
EXPECTED = "Expected numbers, texts, lists, dictionaries, arrays and tensors only."


class _Refused(Exception):
    """A name that may be code."""


class _Array(np.ndarray[Any, Any]):
    """An array whose content comes later. NumPy does not compare the length of a list of objects."""

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, data = state
        if kind.hasobject and (kind.char != "O" or not isinstance(data, list) or len(data) != math.prod(shape)):
            raise ValueError("an array of objects without them")
        checked: Any = (1, shape, kind, fortran, data)
        super().__setstate__(checked)


def _tensor(storage: Any, offset: int, size: Any, stride: Any, *_: Any) -> Array:
    """A view of a storage, which is (N,). Raises ValueError if it would leave it."""
    if not isinstance(storage, np.ndarray) or len(size) != len(stride) or min((offset, *size, *stride), default=0) < 0:
        raise ValueError("a tensor without its numbers")
    if math.prod(size) == 0:
        return np.zeros(size, storage.dtype)
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if max(last + 1, math.prod(size)) > len(storage):  # more than it: parts of it several times
        raise ValueError(f"a tensor that needs {max(last + 1, math.prod(size)):,} numbers of {len(storage):,}")
    steps = [step * storage.itemsize for step in stride]
    return np.lib.stride_tricks.as_strided(storage[offset:], tuple(size), steps, writeable=False)


def _storage(data: bytes) -> Array:
    """The numbers of a tensor inside a pickle, which torch itself reads, weights only."""
    import torch

    storage = _loaded(io.BytesIO(data))
    return torch.tensor([], dtype=storage.dtype).set_(storage).numpy()


def _dictionary(*values: Any) -> dict[Any, Any]:
    return dict(values[0]) if values and not isinstance(values[0], str) else {}


KNOWN: dict[tuple[str, str], Any] = {
    ("numpy.multiarray", "_reconstruct"): lambda *_: _Array((0,), "b"),
    ("numpy.multiarray", "scalar"): lambda kind, data: np.frombuffer(data, kind)[0].item(),
    ("numpy.numeric", "_frombuffer"): lambda data, kind, shape, order: np.frombuffer(data, kind).reshape(
        shape, order=order
    ),
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): lambda text, _=None: text.encode("latin1"),
    ("collections", "OrderedDict"): _dictionary,
    ("collections", "defaultdict"): _dictionary,
    ("builtins", "list"): "list",
    ("builtins", "dict"): "dict",
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch.storage", "_load_from_bytes"): _storage,
}


class _Reader(pickle.Unpickler):
    """Knows the names above only."""

    def find_class(self, module: str, name: str) -> Any:
        short = module.replace("numpy.core.", "numpy.").replace("numpy._core.", "numpy.")
        if (short, name) not in KNOWN:
            raise _Refused(f"{module}.{name}")
        return KNOWN[short, name]


def read_pickle(path: Path) -> Any:
    """The content of a pickle of plain data and arrays. Raises MissingFile, and BadInput naming what it holds."""
    return _read(path, lambda: _unpickled(path))


def read_tensors(path: Path, way_out: str = "") -> Any:
    """The content of a file of `torch.save`, with arrays instead of tensors. Raises MissingFile, BadInput.

    CLEAR's 33,000 single tensors take torch 4 s, once for each import.
    """
    check_weights(path)
    return _read(path, lambda: _as_array(_loaded(path)), way_out)


def _read(path: Path, content: Callable[[], Any], way_out: str = "") -> Any:
    if not path.is_file():
        raise MissingFile(f"There is no file {path}.", "", way_out)
    try:
        value = content()
        if (size := _size(value, {})) > (most := max(UNPACKED, RATIO * path.stat().st_size)):
            raise ValueError(f"{size:,} bytes if each part of it is one of its own; at most {most:,} are read")
        return value
    except _Refused as error:
        raise BadInput(f"{path} holds {error}, which may be code and is never run.", EXPECTED, way_out) from None
    except Exception as error:  # pickle, zipfile, NumPy and torch raise many kinds for a damaged file
        raise BadInput(f"{path} cannot be read ({reason(error)}).", EXPECTED, way_out) from None


def _unpickled(path: Path) -> Any:
    with path.open("rb") as file:
        _check_memo(file)
        return _Reader(file).load()


def _check_memo(file: IO[bytes]) -> None:
    """Raise ValueError for a place in the memo beyond what was put there: Python makes room for all before it."""
    for n, (opcode, place, _) in enumerate(pickletools.genops(file)):
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(place or 0) > n:
            raise ValueError(f"object {place:,} of at most {n:,}")
    file.seek(0)


def _loaded(source: Any) -> Any:
    import torch

    try:
        return torch.load(source, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        name = re.search(r"GLOBAL ([\w.]+)", str(error))
        raise _Refused(name[1] if name else "what torch does not load") from None


def _as_array(value: Any) -> Any:
    """Tensors, in lists and dictionaries → arrays."""
    if isinstance(value, Mapping):
        return {key: _as_array(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_as_array(item) for item in value)
    return value.detach().numpy() if hasattr(value, "detach") else value


def _size(value: Any, sizes: dict[int, int]) -> int:
    """Bytes of a value if what it holds several times is there several times. sizes: of what was met, by identity."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.nbytes
    if not isinstance(value, dict | list | tuple | np.ndarray):
        return len(value) if isinstance(value, str | bytes) else 8
    if id(value) not in sizes:
        sizes[id(value)] = UNPACKED  # while it is open: one that holds itself has no end
        items = value.values() if isinstance(value, dict) else value.flat if isinstance(value, np.ndarray) else value
        sizes[id(value)] = 8 + sum(_size(item, sizes) for item in items)
    return sizes[id(value)]
