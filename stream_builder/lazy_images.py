"""Images that are decoded on access: from tars or files, by position, in bounded memory."""

import hashlib
import os
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadInput, IntegrityError, MissingFile, reason
from driftline.curate.core.system import read_at
from driftline.curate.foreign.images import open_image, square

Array = npt.NDArray[Any]
LARGEST = 1 << 30  # bytes of an encoded image


@dataclass(frozen=True)
class LazyImages:
    """(N, size, size, 3) uint8 images in encoded form; slicing decodes them, as if they were an array."""

    files: tuple[Path, ...]
    """tars or image files"""
    locations: npt.NDArray[np.int64]
    """(N, 3): index in `files`, offset in bytes, length in bytes"""
    size: int
    """edge in pixels: the shorter edge is resized to it, then the centre is cropped"""
    dtype: ClassVar[np.dtype[np.uint8]] = np.dtype(np.uint8)
    ndim: ClassVar[int] = 4

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(N, size, size, 3)."""
        return (len(self.locations), self.size, self.size, 3)

    def __len__(self) -> int:
        return len(self.locations)

    def select(self, positions: Any) -> "LazyImages":
        """The images at `positions` (a slice or an array), not decoded."""
        return LazyImages(self.files, self.locations[positions], self.size)

    def __getitem__(self, positions: Any) -> Array:
        """Decode: (n, size, size, 3), or (size, size, 3) for one position. Raises BadInput, IntegrityError."""
        if isinstance(positions, int | np.integer):
            return self._decode(self.locations[positions])
        chosen = self.locations[positions]
        out = np.empty((len(chosen), self.size, self.size, 3), np.uint8)
        for i, location in enumerate(chosen):
            out[i] = self._decode(location)
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Decode all images."""
        decoded = self[:]
        return decoded if dtype is None else decoded.astype(dtype)

    def raw(self) -> Iterator[bytes]:
        """Bytes of each image, as stored."""
        return (self._read(location) for location in self.locations)

    def sha256(self) -> str:
        """Hash of the stored bytes and of `size`."""
        digest = hashlib.sha256(f"encoded {self.size}".encode())
        for data in self.raw():
            digest.update(len(data).to_bytes(8, "little") + data)
        return digest.hexdigest()

    def _read(self, location: Array) -> bytes:
        number, offset, length = (int(v) for v in location)
        if not (0 <= number < len(self.files) and offset >= 0 and 0 <= length <= LARGEST):
            raise IntegrityError(
                f"An image claims to have {length} bytes at {offset} of file {number} of {len(self.files)}.",
                f"Expected a file that is there, and at most {LARGEST:,} bytes.",
                "Create the stream again.",
            )
        file = _open_file(self.files[number], os.getpid())  # named, so that no other thread's files close it meanwhile
        data = read_at(file.fileno(), length, offset)
        if len(data) != length:
            raise IntegrityError(
                f"{self.files[number]} is truncated.", f"Expected {length} bytes at {offset}.", "Copy the file again."
            )
        return data

    def _decode(self, location: Array) -> Array:
        with open_image(self._read(location), self.files[int(location[0])]) as image:
            image.draft("RGB", (self.size, self.size))
            return square(image, self.size)


@lru_cache(maxsize=64)
def _open_file(path: Path, process: int) -> IO[bytes]:
    """A cached file handle for each process: a forked worker must not use the handle of its parent."""
    return path.open("rb", buffering=0)


def join(parts: Sequence[LazyImages]) -> LazyImages:
    """Concatenate. Raises BadInput if sizes differ."""
    if len({part.size for part in parts}) != 1:
        raise BadInput("The images have several sizes.", "Expected one size.")
    files = tuple(dict.fromkeys(file for part in parts for file in part.files))
    number = {file: i for i, file in enumerate(files)}
    locations = []
    for part in parts:
        renumbered = part.locations.copy()
        renumbered[:, 0] = np.array([number[file] for file in part.files], np.int64)[part.locations[:, 0]]
        locations.append(renumbered)
    return LazyImages(files, np.concatenate(locations), parts[0].size)


def from_files(paths: Sequence[Path], size: int, source: Path) -> LazyImages:
    """One image per file. source: what names the files. Raises MissingFile with the number of those that are missing or
    empty."""
    sizes = []
    for path in paths:
        try:
            sizes.append(path.stat().st_size)
        except OSError:
            sizes.append(0)
    if missing := [path for path, length in zip(paths, sizes, strict=True) if not length]:
        raise MissingFile(
            f"{len(missing):,} of {len(paths):,} images of {source} are missing or empty, the first is {missing[0]}.",
            "Expected the whole dataset, unpacked to the end.",
            "Check the paths, or download and unpack it again.",
        )
    return LazyImages(tuple(paths), as_locations([(i, 0, length) for i, length in enumerate(sizes)]), size)


def from_tars(folder: Path, tars: Sequence[str], members: Sequence[str], size: int) -> LazyImages:
    """The members of tars of `folder`, in this order. Raises IntegrityError for one that its tar lacks."""
    names, wanted = sorted(set(tars)), list(zip(tars, members, strict=True))
    location = {
        (tar, member): (number, offset, length)
        for number, tar in enumerate(names)
        for member, offset, length in tar_members(folder / tar)
    }
    if lost := [key for key in wanted if key not in location]:
        raise IntegrityError(f"The shard {lost[0][0]} lacks the image {lost[0][1]}.", "", "Copy the release again.")
    return LazyImages(tuple(folder / tar for tar in names), as_locations([location[key] for key in wanted]), size)


def as_locations(rows: Sequence[tuple[int, int, int]]) -> npt.NDArray[np.int64]:
    """(N, 3), also for no rows."""
    return np.array(rows, np.int64).reshape(-1, 3)


def tar_members(tar: Path) -> Iterator[tuple[str, int, int]]:
    """Yield (name, offset, length) of every file in a tar, in bytes.

    Raises BadInput, or IntegrityError for a member that is not a plain file in the top folder.
    """
    try:
        with tarfile.open(tar, "r:") as archive:
            for info in archive:
                if not info.isfile() or "/" in info.name or info.name.startswith("."):
                    raise IntegrityError(
                        f"{tar} holds the member {info.name!r}.", "Expected plain files without folders."
                    )
                yield info.name, info.offset_data, info.size
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        raise BadInput(f"{tar} cannot be read as a tar ({reason(error)}).", "Expected WebDataset tars.") from None
