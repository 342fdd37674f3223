"""Arrays from outside: .npy files, opened without reading them, and .npz files, read within limits."""

import math
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadArray, BadInput, IntegrityError, MissingFile, reason
from driftline.curate.foreign.limits import CLASSES, RATIO, UNPACKED

Array = npt.NDArray[Any]


def open_array(path: Path, kinds: str, shape: Sequence[int | None], way_out: str) -> Array:
    """A memory-mapped .npy file.

    kinds: allowed kinds of its dtype, as in "iu". shape: expected; None is any length, and a last -1 any further
    dimensions. Raises IntegrityError naming the file.
    """
    if not path.is_file():
        raise IntegrityError(f"The file {path} is missing.", "", way_out)
    array = mapped(path, way_out)
    if array.dtype.kind not in kinds:
        raise IntegrityError(f"{path} has dtype {array.dtype}.", f"Expected kind {' or '.join(kinds)}.", way_out)
    lengths = list(shape[:-1] if shape and shape[-1] == -1 else shape)
    fits = len(array.shape) == len(lengths) or (shape[-1] == -1 and len(array.shape) > len(lengths))
    if not fits or any(a != b for a, b in zip(array.shape, lengths, strict=False) if b is not None):
        wanted = ", ".join("any" if n is None else "…" if n == -1 else str(n) for n in shape)
        raise IntegrityError(f"{path} has shape {array.shape}.", f"Expected ({wanted}).", way_out)
    return array


def mapped(path: Path, way_out: str) -> Array:
    """Any .npy file, memory-mapped; never Python objects. Raises MissingFile, IntegrityError."""
    if not path.is_file():
        raise MissingFile(f"There is no file {path}.", "Expected a .npy file.", way_out)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy warns of headers that Python 2 wrote
            array: Array = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # numpy raises nearly anything for a damaged header
        raise IntegrityError(
            f"{path} cannot be read as an array ({reason(error)}).", "Expected a .npy file.", way_out
        ) from None
    return array


def read_arrays(path: Path, expected: str, skip_objects: bool = False) -> dict[str, Array]:
    """The arrays of an .npz file by name. Python objects are never loaded; skip_objects: they are left out.

    Nothing is unpacked before the sizes in the file are known to be within the limits and those of its headers. Raises
    MissingFile, BadInput naming the file. expected: a sentence for messages.
    """
    if not path.is_file():
        raise MissingFile(f"There is no file {path}.", expected)
    try:
        with zipfile.ZipFile(path) as file:
            members = [info for info in file.infolist() if info.filename.endswith(".npy")]
            _check_unpacked(path, members)
            arrays = {}
            for info in members:
                with file.open(info) as member:
                    array = _array(member, info.file_size)
                if array is None and not skip_objects:
                    raise BadInput(f"{info.filename} in {path} holds Python objects.", expected)
                if array is not None:
                    arrays[info.filename.removesuffix(".npy")] = array
            return arrays
    except BadInput:
        raise
    except Exception as error:  # zipfile, zlib and numpy raise many kinds
        raise BadInput(f"{path} cannot be read as .npz ({reason(error)}).", expected) from None


def check_weights(path: Path) -> None:
    """Raise BadInput for a file of `torch.save` whose members would unpack to more than the limits."""
    if not path.is_file():
        return
    try:
        if not zipfile.is_zipfile(path):  # raises BadZipFile for a part of several
            return
        with zipfile.ZipFile(path) as file:
            members = file.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError) as error:  # RuntimeError: of another version
        raise BadInput(f"{path} is no whole checkpoint ({reason(error)}).", "Expected tensors only.") from None
    _check_unpacked(path, members)


def _check_unpacked(path: Path, members: Sequence[zipfile.ZipInfo]) -> None:
    size, most = sum(info.file_size for info in members), max(UNPACKED, RATIO * path.stat().st_size)
    if size > most:
        raise BadInput(f"{path} would unpack to {size:,} bytes.", f"Expected at most {most:,}.")


def _array(member: IO[bytes], size: int) -> Array | None:
    """The array of a member of `size` bytes; None for Python objects. Raises ValueError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        version = np.lib.format.read_magic(member)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, fortran, dtype = read[version](member)
    if dtype.hasobject:
        return None
    stored, needed = size - member.tell(), dtype.itemsize * math.prod(shape)
    if needed != stored or min(shape, default=0) < 0:
        raise ValueError(f"an array of {needed:,} bytes in {stored:,}")
    return np.frombuffer(member.read(), dtype).reshape(shape, order="F" if fortran else "C").copy()


def number_of_classes(labels: Sequence[Array], source: Path) -> int:
    """Classes from 0 to the largest label. Raises BadArray for a label beyond CLASSES. source: for the message."""
    top = max(int(y.max(initial=-1)) for y in labels)
    if top >= CLASSES:
        raise BadArray(f"{source} has the label {top}.", f"Expected less than {CLASSES:,}.", "Number classes from 0.")
    return top + 1


def moments_of(column: Any) -> Any:
    """Periods of pandas as their first moment; other columns as they are."""
    return column.dt.to_timestamp() if str(getattr(column, "dtype", "")).startswith("period[") else column
