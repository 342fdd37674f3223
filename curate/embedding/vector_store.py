"""Vectors on disk: the output of an embed stage, memory-mapped, with ids and buckets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.curate.core.errors import BadInput, MissingFile
from driftline.curate.foreign.arrays import mapped

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class VectorFile:
    """One `.npy` file of vectors, (rows, width) float16 or float32, row-major."""

    path: Path
    offset: int
    """bytes before the first vector"""
    rows: int
    width: int
    dtype: Literal["float16", "float32"]

    def map(self) -> npt.NDArray[Any]:
        """The vectors, memory-mapped."""
        return np.memmap(self.path, self.dtype, "r", self.offset, (self.rows, self.width))


@dataclass(frozen=True)
class Store:
    """N vectors in several files, each with a bucket and an id."""

    files: tuple[VectorFile, ...]
    buckets: npt.NDArray[np.int32]
    """(N,)"""
    ids: pa.ChunkedArray
    """N strings"""
    starts: Ints = field(init=False)
    """first row of each file, and N"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "starts", np.cumsum([0, *(file.rows for file in self.files)]).astype(np.int64))
        widths = {file.width for file in self.files}
        if len(widths) > 1:
            raise BadInput(
                f"The vectors have different widths: {sorted(widths)}.", "Expected one width.", "Embed again."
            )
        if not len(self.ids) == len(self.buckets) == self.starts[-1]:
            raise BadInput(
                f"There are {self.starts[-1]:,} vectors for {len(self.ids):,} ids.", "", "Embed the shard again."
            )

    @property
    def width(self) -> int:
        """D; 0 for a store without files."""
        return self.files[0].width if self.files else 0

    def __len__(self) -> int:
        return len(self.buckets)

    @staticmethod
    def open(folder: Path) -> Store:
        """Open the folder of an embed stage: `img_emb/*.npy`, `metadata/*.parquet` (id, bucket, fault)."""
        files, buckets, ids = [], [], []
        for table, file in parts(folder):
            files.append(file)
            buckets.append(table["bucket"].to_numpy())
            ids += table["id"].chunks
        return Store(
            tuple(files),
            np.concatenate(buckets).astype(np.int32) if buckets else np.zeros(0, np.int32),
            pa.chunked_array(ids, pa.string()),
        )

    def take(self, rows: Ints) -> npt.NDArray[Any]:
        """The vectors of some rows, in the order of `rows`, in the stored dtype."""
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        out = np.empty((len(rows), self.width), self.files[0].dtype if self.files else "float16")
        cuts = np.searchsorted(ordered, self.starts)
        for file, start, low, high in zip(self.files, self.starts, cuts[:-1], cuts[1:], strict=False):
            if high > low:
                out[order[low:high]] = file.map()[ordered[low:high] - start]
        return out

    def names(self, rows: Ints) -> list[str]:
        """The ids of some rows."""
        names: list[str] = pc.take(self.ids, pa.array(rows)).to_pylist()
        return names


def parts(folder: Path) -> Iterator[tuple[pa.Table, VectorFile]]:
    """Yield (table with id, bucket and phash, its vectors) of every part of an embed stage's folder, in shard order."""
    for metadata in sorted((folder / "metadata").glob("metadata_*.parquet")):
        table = pq.read_table(metadata)
        table = table.filter(pc.is_null(table["fault"]))
        file = vector_file(vectors_path(metadata))
        if file.rows != len(table):
            raise BadInput(f"{file.path} has {file.rows} vectors for {len(table)} ids.", "", "Embed the shard again.")
        yield table, file


def vectors_path(metadata: Path) -> Path:
    """The file with the vectors of a metadata file."""
    name = metadata.name.replace("metadata_", "img_emb_").replace(".parquet", ".npy")
    return metadata.parent.parent / "img_emb" / name


def vectors_of(folder: Path, ids: list[str]) -> npt.NDArray[np.float16]:
    """(N, D) float16 in the order of `ids`, from a finished embed stage. Raises MissingFile if it has no vectors."""
    store = Store.open(folder)
    if not store.files:
        raise MissingFile(f"{folder} holds no vectors.", "Expected a finished embed stage.")
    return store.take(pc.index_in(pa.array(ids, pa.string()), value_set=store.ids).to_numpy())


def vector_file(path: Path) -> VectorFile:
    """Read the header of a `.npy` file. Raises BadInput for anything but a matrix of float16 or float32, and as
    `mapped`."""
    array = mapped(path, "Embed again.")
    good = array.ndim == 2 and array.dtype in (np.float16, np.float32) and array.flags.c_contiguous
    if not good or not isinstance(array, np.memmap):
        if array.ndim == 2 and len(array) == 0:  # an empty file cannot be memory-mapped
            return VectorFile(path, 0, 0, array.shape[1], "float16")
        raise BadInput(
            f"{path} holds {array.dtype} of shape {array.shape}.", "Expected float16 or float32 (N, D), row-major."
        )
    rows, width = array.shape
    return VectorFile(path, array.offset, rows, width, "float16" if array.dtype == np.float16 else "float32")
