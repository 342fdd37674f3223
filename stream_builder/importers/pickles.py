"""Pickles from outside, read without running code: numbers, texts, lists, dictionaries, NumPy arrays, torch tensors.

A pickle names the functions that rebuild its objects. Here a name stands for one of the few functions below, which
make arrays with checked sizes; any other name is refused before anything is called. Tensors become arrays.
"""

from __future__ import annotations

import io
import math
import mmap
import pickle
import pickletools
import re
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadInput, MissingFile, reason
from driftline.curate.core.outside.limits import RATIO, UNPACKED

Array = npt.NDArray[Any]
STORAGES = {
    "FloatStorage": "f4", "DoubleStorage": "f8", "HalfStorage": "f2", "LongStorage": "i8", "IntStorage": "i4",
    "ShortStorage": "i2", "CharStorage": "i1", "ByteStorage": "u1", "BoolStorage": "?",
}  # fmt: skip
LOCAL_HEADER = 30  # bytes of a member's header in a zip file, before its name
EXPECTED = "Expected numbers, texts, lists, dictionaries, arrays and tensors only."


class _Refused(Exception):
    """A name that may be code."""


class _Kind:
    """A dtype as a pickle describes it: first its kind, then its byte order."""

    def __init__(self, text: Any = "", *_: Any) -> None:
        if not isinstance(text, str) or not re.fullmatch(r"[|<>=]?(b1|[iuf][1248]|[US]\d{1,9}|O8?)", text):
            raise _Refused(f"the dtype {text!r}")
        self.dtype = np.dtype(text)

    def __setstate__(self, state: Any) -> None:
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


class _Shell:
    """An array whose content comes later."""

    value: Array

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, data = state
        self.value = _filled(data, kind.dtype, shape, "F" if fortran else "C")


def _filled(data: Any, dtype: np.dtype[Any], shape: Any, order: Any = "C") -> Array:
    """An array of exactly this size. Raises ValueError."""
    shape = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    if dtype.kind == "O":
        if not isinstance(data, list) or len(data) != math.prod(shape):
            raise ValueError("an array of objects without them")
        array = np.empty(len(data), object)
        array[:] = data
        return array.reshape(shape, order=order)
    return np.frombuffer(data, dtype).reshape(shape, order=order)


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


def _scalar(kind: _Kind, data: Any) -> Any:
    return np.frombuffer(data, kind.dtype)[0].item()


def _encoded(text: str, _: Any = None) -> bytes:
    return text.encode("latin1")


def _legacy_storage(data: bytes) -> Array:
    """A storage inside another pickle, in torch's old format: torch itself reads it, weights only."""
    return _as_array(_loaded(io.BytesIO(data)))


def _dictionary(*values: Any) -> dict[Any, Any]:
    return dict(values[0]) if values and not isinstance(values[0], str) else {}


MULTIARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")
NUMERIC = ("numpy.core.numeric", "numpy._core.numeric")
KNOWN: dict[tuple[str, str], Any] = {
    **{(module, "_reconstruct"): lambda *_: _Shell() for module in MULTIARRAY},
    **{(module, "scalar"): _scalar for module in MULTIARRAY},
    **{(m, "_frombuffer"): lambda data, kind, shape, order: _filled(data, kind.dtype, shape, order) for m in NUMERIC},
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): _Kind,
    ("_codecs", "encode"): _encoded,
    ("collections", "OrderedDict"): _dictionary,
    ("collections", "defaultdict"): _dictionary,
    ("builtins", "list"): "list",
    ("builtins", "dict"): "dict",
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch.storage", "_load_from_bytes"): _legacy_storage,
    **{("torch", name): kind for name, kind in STORAGES.items()},
}


class _Reader(pickle.Unpickler):
    """Knows the names above only."""

    def __init__(self, file: IO[bytes], storage: Callable[[str, str, int], Array] | None = None) -> None:
        super().__init__(file)
        self.storage = storage

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in KNOWN:
            raise _Refused(f"{module}.{name}")
        return KNOWN[module, name]

    def persistent_load(self, pid: Any) -> Any:
        if self.storage is None or not isinstance(pid, tuple) or len(pid) != 5 or pid[1] not in STORAGES.values():
            raise _Refused("an object from elsewhere")
        return self.storage(pid[1], str(pid[2]), int(pid[4]))


def read_pickle(path: Path) -> Any:
    """The content of a pickle of plain data and arrays. Raises MissingFile, and BadInput naming what it holds."""
    return _read(path, lambda: _without_shells(_unpickled(path), {}))


def read_tensors(path: Path, way_out: str = "") -> Any:
    """The content of a file of `torch.save`, with arrays instead of tensors. Raises MissingFile, BadInput.

    A file in torch's old format is read by `torch.load(weights_only=True)`; one in the format since 1.6, which is a zip
    file, by this module, because CLEAR's 33,000 single tensors take torch 4 s.
    """

    def content() -> Any:
        if zipfile.is_zipfile(path):
            return _without_shells(_from_zip(path), {})
        return _as_array(_loaded(path))

    return _read(path, content, way_out)


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
    """Tensors and storages, in lists and dictionaries → arrays."""
    if isinstance(value, Mapping):
        return {key: _as_array(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_as_array(item) for item in value)
    if hasattr(value, "untyped") and not hasattr(value, "numpy"):  # a storage
        import torch

        return torch.tensor([], dtype=value.dtype).set_(value).numpy()
    return value.detach().numpy() if hasattr(value, "detach") else value


def _from_zip(path: Path) -> Any:
    """Tensors as views of the mapped file, whose members are stored one after the other, each with its checksum."""
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        members = {info.filename.partition("/")[2]: info for info in archive.infolist()}
        content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        if archive.read(members["byteorder"]) != b"little" if "byteorder" in members else False:
            raise ValueError("its numbers are big-endian")

        def stored(name: str) -> memoryview:
            info = members[name]
            start = info.header_offset + LOCAL_HEADER
            start += int.from_bytes(content[start - 4 : start - 2], "little")
            start += int.from_bytes(content[info.header_offset + 28 : info.header_offset + 30], "little")
            data = content[start : start + info.file_size]
            if info.compress_type != zipfile.ZIP_STORED or zlib.crc32(data) != info.CRC:
                raise ValueError(f"the checksum of {name} differs")
            return data

        storages: dict[str, Array] = {}  # many tensors may be views of one

        def storage(kind: str, key: str, n: int) -> Array:
            if key not in storages:
                storages[key] = _filled(stored(f"data/{key}"), np.dtype(kind), (n,))
            return storages[key]

        content_of = io.BytesIO(stored("data.pkl"))
        _check_memo(content_of)
        return _Reader(content_of, storage).load()


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


def _without_shells(value: Any, done: dict[int, Any]) -> Any:
    """Shells → their arrays. done: what was met, by identity: a pickle may hold one object in many places."""
    if isinstance(value, _Shell):
        return value.value
    if not isinstance(value, dict | list | tuple):
        return value
    if id(value) not in done:
        if isinstance(value, dict):
            copy: dict[Any, Any] = {}
            done[id(value)] = copy
            copy.update((key, _without_shells(item, done)) for key, item in value.items())
        elif isinstance(value, list):
            items: list[Any] = []
            done[id(value)] = items
            items.extend(_without_shells(item, done) for item in value)
        else:
            done[id(value)] = tuple(_without_shells(item, done) for item in value)
    return done[id(value)]
