"""Images that are decoded when they are asked for: from tars or files, by position, in bounded memory."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from curate.core.errors import BadInput, IntegrityError

Array = npt.NDArray[Any]
PICTURES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")


@dataclass(frozen=True)
class Encoded:
    """(N, size, size, 3) uint8 images that lie encoded in files; looks like an array to whoever slices it.

    files: tars, or image files. where: (N, 3) int64: number of the file, offset, bytes. size: shorter edge after
    resizing, then the centre is cut out. strict: images other than 8-bit RGB are refused; else they are converted.
    """

    files: tuple[Path, ...]
    where: npt.NDArray[np.int64]
    size: int
    strict: bool = False

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(N, size, size, 3)."""
        return (len(self.where), self.size, self.size, 3)

    @property
    def dtype(self) -> np.dtype[np.uint8]:
        """uint8."""
        return np.dtype(np.uint8)

    @property
    def ndim(self) -> int:
        """4."""
        return 4

    def __len__(self) -> int:
        return len(self.where)

    def select(self, positions: Any) -> Encoded:
        """Some of the images, still encoded. positions: a slice or an array."""
        return Encoded(self.files, self.where[positions], self.size, self.strict)

    def __getitem__(self, positions: Any) -> Array:
        """Decoded: (n, size, size, 3), or (size, size, 3) for one position."""
        if isinstance(positions, int | np.integer):
            return self._decoded(self.where[positions])
        rows = self.where[positions]
        out = np.empty((len(rows), self.size, self.size, 3), np.uint8)
        for i, row in enumerate(rows):
            out[i] = self._decoded(row)
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """All of them, decoded."""
        whole = self[:]
        return whole if dtype is None else whole.astype(dtype)

    def raw(self) -> Iterator[bytes]:
        """The encoded images, in order."""
        return (self._read(row) for row in self.where)

    def sha256(self) -> str:
        """Hash of the encoded images and the size that they are given."""
        digest = hashlib.sha256(f"encoded {self.size}".encode())
        for data in self.raw():
            digest.update(len(data).to_bytes(8, "little") + data)
        return digest.hexdigest()

    def _read(self, row: Array) -> bytes:
        number, offset, length = (int(v) for v in row)
        data = os.pread(_opened(self.files[number], os.getpid()).fileno(), length, offset)
        if len(data) != length:
            raise IntegrityError(
                f"{self.files[number]} ends too early.", f"Expected {length} bytes at {offset}.", "Copy it."
            )
        return data

    def _decoded(self, row: Array) -> Array:
        from PIL import Image, ImageOps

        try:
            with Image.open(io.BytesIO(self._read(row))) as image:
                if self.strict and image.mode != "RGB":
                    raise BadInput(
                        f"{self.files[int(row[0])]}: an image of mode {image.mode}.",
                        "Expected 8-bit RGB.",
                        "Convert grey, RGBA and 16-bit images first.",
                    )
                image.draft("RGB", (self.size, self.size))
                fitted = ImageOps.fit(image.convert("RGB"), (self.size, self.size), Image.Resampling.BICUBIC)
                return np.asarray(fitted)
        except OSError as error:
            raise BadInput(f"{self.files[int(row[0])]}: no image ({error}).", "Expected one that decodes.") from None


@lru_cache(maxsize=64)
def _opened(path: Path, process: int) -> IO[bytes]:
    """An open file of this process: a forked worker must not share a handle's cache with its parent."""
    return path.open("rb")


def join(parts: Sequence[Encoded]) -> Encoded:
    """Images one after the other. Raises BadInput where their sizes differ."""
    if len({(p.size, p.strict) for p in parts}) != 1:
        raise BadInput("Images of several sizes.", "Expected one size.")
    files = tuple(dict.fromkeys(f for p in parts for f in p.files))
    number = {f: i for i, f in enumerate(files)}
    rows = []
    for p in parts:
        moved = p.where.copy()
        moved[:, 0] = np.array([number[f] for f in p.files], np.int64)[p.where[:, 0]]
        rows.append(moved)
    return Encoded(files, np.concatenate(rows), parts[0].size, parts[0].strict)


def of_files(paths: Sequence[Path], size: int, strict: bool = False) -> Encoded:
    """One image a file."""
    rows = [(i, 0, p.stat().st_size) for i, p in enumerate(paths)]
    return Encoded(tuple(paths), np.array(rows, np.int64).reshape(-1, 3), size, strict)


def members(tar: Path) -> Iterator[tuple[str, int, int]]:
    """Yield (name, offset, bytes) of every file in a tar. Raises IntegrityError for members outside the top folder."""
    try:
        with tarfile.open(tar, "r:") as opened:
            for info in opened:
                if not info.isfile() or "/" in info.name or info.name.startswith("."):
                    raise IntegrityError(
                        f"{tar} holds the member {info.name!r}.", "Expected plain files without folders."
                    )
                yield info.name, info.offset_data, info.size
    except tarfile.TarError as error:
        raise BadInput(f"{tar} is no tar ({error}).", "Expected WebDataset tars.") from None
