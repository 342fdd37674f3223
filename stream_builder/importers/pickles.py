"""Pickles from outside, read without running code: numbers, texts, lists, dictionaries, NumPy arrays, torch tensors.

A pickle names the functions that rebuild its objects. Here a name stands for one of the few functions below, which
make arrays with checked sizes; any other name is refused before anything is called. Tensors become arrays.
"""

import io
import math
import pickle
import pickletools
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadInput, MissingFile, reason
from driftline.curate.foreign.limits import RATIO, UNPACKED

Array = npt.NDArray[Any]
STORAGES = {
    "Float": "<f4", "Double": "<f8", "Half": "<f2", "Long": "<i8", "Int": "<i4", "Short": "<i2", "Char": "i1",
    "Byte": "u1", "Bool": "?",
}  # fmt: skip
BARE = re.escape("".join(op.code for op in pickletools.opcodes if op.arg is None and op.code != ".").encode("latin1"))
TEXTS = b"|".join(re.escape(bytes([n])) + b"\0\0\0" + b"." * n for n in range(100))
SMALL = rb"(?s)(?:[%b]|[qhK\x80].|M..|r..[\0-\x07]\0|c[^\n]*\n[^\n]*\n|X(?:%b))*+\." % (BARE, TEXTS)
"""a pickle of tensors as torch writes it, with places in the memo below half a million"""
EXPECTED = "Expected numbers, texts, lists, dictionaries, arrays and tensors only."


class _Refused(Exception):
    """A name that may be code."""


class _Kind:
    """The dtype of arrays. NumPy's own believes any state that it is given, and crashes."""

    def __init__(self, name: Any, *_: Any) -> None:
        self.dtype = np.dtype(str(name))
        if self.dtype.kind not in "biufcOSU":
            raise ValueError(f"an array of {name}")

    def __setstate__(self, state: Any) -> None:
        self.dtype = self.dtype.newbyteorder(state[1])


class _Array(np.ndarray[Any, Any]):
    """An array whose content comes later. NumPy does not compare the length of a list of objects."""

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, data = state
        objects = kind.dtype.hasobject
        size = math.prod(shape) * (1 if objects else kind.dtype.itemsize)
        if isinstance(data, list) != objects or len(data) != size or min(shape, default=0) < 0:
            raise ValueError("an array without its numbers or objects")
        checked: Any = (1, shape, kind.dtype, fortran, data)
        super().__setstate__(checked)


def _tensor(storage: Any, offset: int, size: Any, stride: Any, *_: Any) -> Array:
    """A view of a storage, which is (N,). Raises ValueError if it would leave it.

    A pickle may set the state of an _Array again, which frees its bytes. It cannot of others: that takes a dtype.
    """
    if type(storage) is not np.ndarray or len(size) != len(stride) or min((offset, *size, *stride), default=0) < 0:
        raise ValueError("a tensor without its numbers")
    if math.prod(size) == 0:
        return np.zeros(size, storage.dtype)
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if last >= len(storage):
        raise ValueError(f"a tensor that needs {last + 1:,} numbers of {len(storage):,}")
    steps = [step * storage.itemsize for step in stride]
    return np.ndarray(size, storage.dtype, storage, offset * storage.itemsize, steps)


def _storage(data: bytes) -> Array:
    """The numbers of a tensor inside a pickle, which torch itself reads, weights only."""
    import torch

    storage = _loaded(io.BytesIO(data))
    return torch.tensor([], dtype=storage.dtype).set_(storage).numpy()


def _dictionary(*values: Any) -> dict[Any, Any]:
    return dict(values[0]) if values and not isinstance(values[0], str) else {}


KNOWN: dict[tuple[str, str], Any] = {
    ("numpy.multiarray", "_reconstruct"): lambda *_: _Array((0,), "b"),
    ("numpy.multiarray", "scalar"): lambda kind, data: np.frombuffer(data, kind.dtype)[0].item(),
    ("numpy.numeric", "_frombuffer"): lambda data, kind, shape, order: np.frombuffer(
        memoryview(data).tobytes(), kind.dtype
    ).reshape(shape, order=order),
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): _Kind,
    ("_codecs", "encode"): lambda text, _=None: text.encode("latin1"),
    ("collections", "OrderedDict"): _dictionary,
    ("collections", "defaultdict"): _dictionary,
    ("builtins", "list"): "list",
    ("builtins", "dict"): "dict",
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
    ("torch.storage", "_load_from_bytes"): _storage,
    **{("torch", f"{name}Storage"): kind for name, kind in STORAGES.items()},
}


class _Reader(pickle.Unpickler):
    """Knows the names above only."""

    def find_class(self, module: str, name: str) -> Any:
        short = module.replace("numpy.core.", "numpy.").replace("numpy._core.", "numpy.")
        if (short, name) not in KNOWN:
            if module == "torch" and name.endswith("Storage"):
                raise ValueError(f"numbers of torch.{name}, which are not read: save them with .float()")
            raise _Refused(f"{module}.{name}")
        return KNOWN[short, name]


def read_pickle(path: Path) -> Any:
    """The content of a pickle of plain data and arrays. Raises MissingFile, and BadInput naming what it holds."""
    return _read(path, lambda: _unpickled(path))


def read_tensors(path: Path, way_out: str = "") -> Any:
    """The content of a file of `torch.save`, with arrays instead of tensors. Raises MissingFile, BadInput.

    torch reads its format before 1.6; for CLEAR's 33,000 tensors in zip files it needs six times as long as this.
    """
    return _read(path, lambda: _from_zip(path) if zipfile.is_zipfile(path) else _as_array(_loaded(path)), way_out)


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


def _from_zip(path: Path) -> Any:
    """Tensors as views of the file's bytes, in which torch stores each member as it is."""
    data = np.memmap(path, mode="r").data
    with zipfile.ZipFile(path) as archive:
        members = {info.filename.partition("/")[2]: info for info in archive.infolist()}

    @cache
    def stored(name: str, kind: str) -> Array:
        info = members[name]
        start = info.header_offset + 30  # the lengths of name and extra field are the last of these
        start += sum(struct.unpack_from("<HH", data, start - 4))
        content = data[start : start + info.file_size]
        if zlib.crc32(content) != info.CRC:
            raise ValueError(f"{name} is compressed or damaged")
        return np.frombuffer(content, kind)

    if "byteorder" in members and stored("byteorder", "u1").tobytes() != b"little":
        raise ValueError("big-endian numbers")
    file = io.BytesIO(stored("data.pkl", "u1").tobytes())
    if not re.fullmatch(SMALL, file.getbuffer()):
        _check_memo(file)
    reader = _Reader(file)
    reader.persistent_load = lambda pid: stored(f"data/{pid[2]}", pid[1])  # type: ignore[method-assign]
    return reader.load()


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
