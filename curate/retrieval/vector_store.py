"""Vectors on disk: the embedded shards of a run, memory-mapped, with their ids and buckets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.core.errors import BadInput

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Part:
    """One `.npy` file of vectors, (rows, width) float16 or float32, row-major."""

    path: Path
    offset: int
    rows: int
    width: int
    dtype: Literal["float16", "float32"]

    def map(self) -> npt.NDArray[Any]:
        """The vectors, memory-mapped."""
        return np.memmap(self.path, self.dtype, "r", self.offset, (self.rows, self.width))


@dataclass(frozen=True)
class Store:
    """Vectors in parts, and of every row its bucket (int32) and id."""

    parts: tuple[Part, ...]
    buckets: npt.NDArray[np.int32]
    ids: pa.ChunkedArray
    starts: Ints = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "starts", np.cumsum([0, *(p.rows for p in self.parts)]).astype(np.int64))
        widths = {p.width for p in self.parts}
        if len(widths) > 1:
            raise BadInput(f"The vectors have different widths: {sorted(widths)}.", "Expected one.", "Embed again.")
        if not len(self.ids) == len(self.buckets) == self.starts[-1]:
            raise BadInput(
                f"There are {self.starts[-1]:,} vectors for {len(self.ids):,} ids.", "", "Embed the shard again."
            )

    @property
    def width(self) -> int:
        """D; 0 without any part."""
        return self.parts[0].width if self.parts else 0

    def __len__(self) -> int:
        return len(self.buckets)

    @staticmethod
    def open(folder: Path) -> Store:
        """The folder of an embed stage: `img_emb/*.npy`, `metadata/*.parquet` (id, bucket, fault)."""
        parts, buckets, ids = [], [], []
        for metadata in sorted((folder / "metadata").glob("metadata_*.parquet")):
            table = pq.read_table(metadata, columns=["id", "bucket", "fault"])
            table = table.filter(pc.is_null(table["fault"]))
            name = metadata.name.replace("metadata_", "img_emb_").replace(".parquet", ".npy")
            part = part_of(folder / "img_emb" / name)
            if part.rows != len(table):
                raise BadInput(f"{part.path} has {part.rows} vectors for {len(table)} ids.", "", "Embed it again.")
            parts.append(part)
            buckets.append(table["bucket"].to_numpy())
            ids += table["id"].chunks
        return Store(
            tuple(parts),
            np.concatenate(buckets).astype(np.int32) if buckets else np.zeros(0, np.int32),
            pa.chunked_array(ids, pa.string()),
        )

    @staticmethod
    def of_array(vectors: npt.NDArray[Any], ids: Sequence[str], path: Path, bucket: int = 0) -> Store:
        """Vectors in memory, written to `path` first."""
        np.save(path, np.ascontiguousarray(vectors), allow_pickle=False)
        return Store((part_of(path),), np.full(len(ids), bucket, np.int32), pa.chunked_array([pa.array(ids)]))

    def take(self, rows: Ints) -> npt.NDArray[Any]:
        """The vectors of some rows, in their order, as they are stored."""
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        dtype = self.parts[0].dtype if self.parts else "float16"
        out = np.empty((len(rows), self.width), dtype)
        cuts = np.searchsorted(ordered, self.starts)
        for part, start, low, high in zip(self.parts, self.starts, cuts[:-1], cuts[1:], strict=False):
            if high > low:
                out[order[low:high]] = part.map()[ordered[low:high] - start]
        return out

    def names(self, rows: Ints) -> list[str]:
        """The ids of some rows."""
        taken: list[str] = pc.take(self.ids, pa.array(rows)).to_pylist()
        return taken


def part_of(path: Path) -> Part:
    """The header of a `.npy` file. Raises BadInput for what is no matrix of float16 or float32."""
    try:
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise BadInput(f"There is no file {path}.", "Expected vectors beside their metadata.", "Embed again.") from None
    except ValueError as error:
        raise BadInput(
            f"{path} cannot be read ({error}).", "Expected a whole .npy file without objects.", "Embed again."
        ) from None
    good = mapped.ndim == 2 and mapped.dtype in (np.float16, np.float32) and mapped.flags.c_contiguous
    if not good or not isinstance(mapped, np.memmap):
        if mapped.ndim == 2 and len(mapped) == 0:  # an empty file cannot be mapped
            return Part(path, 0, 0, mapped.shape[1], "float16")
        raise BadInput(
            f"{path} holds {mapped.dtype} of shape {mapped.shape}.", "Expected float16 or float32 (N, D), row-major."
        )
    rows, width = mapped.shape
    return Part(path, mapped.offset, rows, width, "float16" if mapped.dtype == np.float16 else "float32")
