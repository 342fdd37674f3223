"""A growing memory of vectors, searched by cosine: exact in blocks, or through a faiss index whose recall is measured.

Vectors lie in blocks, so that the memory grows without being copied; blocks beyond a limit of main memory are mapped
files. Exact answers do not depend on blocks or batches: among equal cosines the older vector comes first.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
ROWS = 16_384  # vectors of a block
ONE_BY_ONE = 256  # samples of a block of `stream`


@dataclass
class Memory:
    """width: D. exact_below: vectors up to which a search is exact; above, an HNSW index answers, and its recall
    against exact search is measured whenever the memory has doubled. limit_mb: vectors beyond it lie in files."""

    width: int
    exact_below: int = 1_000_000
    limit_mb: int = 4096
    n: int = 0
    recalls: list[tuple[int, float]] = field(default_factory=list)
    blocks: list[Vectors] = field(default_factory=list)
    index: Any = None
    folder: Any = None

    def add(self, x: npt.NDArray[Any]) -> None:
        """Append x (n, D), brought to unit length."""
        x = unit(x)
        done = 0
        while done < len(x):
            filled = self.n % ROWS
            if filled == 0:
                self.blocks.append(self._block())
            part = x[done : done + ROWS - filled]
            self.blocks[-1][filled : filled + len(part)] = part
            self.n += len(part)
            done += len(part)
        if self.index is not None:
            self.index.add(x)
        elif self.n > self.exact_below:
            self._build()

    def search(self, q: npt.NDArray[Any], k: int) -> tuple[Vectors, npt.NDArray[np.int64]]:
        """q (m, D) → cosines (m, k) and positions (m, k) of the nearest, best first; k at most what there is."""
        k = min(k, self.n)
        if self.index is not None:
            cosines, positions = self.index.search(unit(q), k)
            return cosines, positions
        return self.exact(unit(q), k)

    def exact(self, q: Vectors, k: int) -> tuple[Vectors, npt.NDArray[np.int64]]:
        """The same, always exact; q of unit length."""
        best = np.full((len(q), 0), -np.inf, np.float32), np.zeros((len(q), 0), np.int64)
        for number, block in enumerate(self.blocks):
            size = min(ROWS, self.n - number * ROWS)
            best = merged(best, top(q @ block[:size].T, k, number * ROWS), k)
        return best

    def stream(self, x: npt.NDArray[Any], k: int) -> tuple[Vectors, npt.NDArray[np.int64]]:
        """Search for each row of x (n, D) among the memory and the rows before it, then append them all.

        Equal to searching and adding one row after the other, exactly; a block of rows shares one product with the
        memory and one with itself. Where there are fewer than k: cosine −inf, position −1.
        """
        found: list[tuple[Vectors, npt.NDArray[np.int64]]] = []
        for low in range(0, len(x), ONE_BY_ONE):
            q = unit(x[low : low + ONE_BY_ONE])
            own = q @ q.T
            own[np.triu_indices(len(q))] = -np.inf
            best = merged(self.exact(q, min(k, self.n)), top(own, min(k, len(q)), self.n), k)
            positions = np.where(np.isneginf(best[0]), -1, best[1])
            lacking = ((0, 0), (0, k - best[0].shape[1]))
            found.append(
                (
                    np.pad(best[0], lacking, constant_values=-np.inf),
                    np.pad(positions, lacking, constant_values=-1),
                )
            )
            self.add(q)
        return np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found])

    def __getstate__(self) -> dict[str, Any]:
        """For checkpoints: vectors as arrays, the index as faiss writes it."""
        import faiss

        state = dict(vars(self))
        state["blocks"] = [np.array(b[: min(ROWS, self.n - i * ROWS)]) for i, b in enumerate(self.blocks)]
        state["index"] = None if self.index is None else faiss.serialize_index(self.index)
        state["folder"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        import faiss

        blocks, index = state.pop("blocks"), state.pop("index")
        vars(self).update(state, blocks=[], index=None)
        for vectors in blocks:
            self.blocks.append(self._block())
            self.blocks[-1][: len(vectors)] = vectors
        self.index = None if index is None else faiss.deserialize_index(index)

    @property
    def nbytes(self) -> int:
        """Bytes of the vectors."""
        return self.n * self.width * 4

    def _block(self) -> Vectors:
        """Room for a block: in main memory, or in a file."""
        size = ROWS * self.width * 4
        if (len(self.blocks) + 1) * size <= self.limit_mb * 2**20:
            return np.empty((ROWS, self.width), np.float32)
        if self.folder is None:
            self.folder = tempfile.TemporaryDirectory(prefix="driftline-memory-")
        place = Path(self.folder.name) / f"{len(self.blocks)}.f32"
        return np.memmap(place, np.float32, "w+", shape=(ROWS, self.width))

    def _build(self) -> None:
        """An HNSW index of all vectors [M 25, efConstruction 500: EvalOCL]; its recall is written down."""
        import faiss

        self.index = faiss.IndexHNSWFlat(self.width, 25, faiss.METRIC_INNER_PRODUCT)
        self.index.hnsw.efConstruction = 500
        self.index.hnsw.efSearch = 128
        for number, block in enumerate(self.blocks):
            self.index.add(np.ascontiguousarray(block[: min(ROWS, self.n - number * ROWS)]))

    def measure(self, q: npt.NDArray[Any], k: int) -> float | None:
        """Share of the k nearest of q that the index finds; None while searches are exact. Kept in `recalls`, once
        whenever the memory has doubled."""
        if self.index is None or (self.recalls and self.n < 2 * self.recalls[-1][0]):
            return self.recalls[-1][1] if self.recalls else None
        q = unit(q)
        truth = self.exact(q, k)[1]
        answers = self.index.search(q, k)[1]
        share = float(
            np.mean([len(set(a) & set(b)) / k for a, b in zip(truth.tolist(), answers.tolist(), strict=True)])
        )
        self.recalls.append((self.n, share))
        return share


def unit(x: npt.NDArray[Any]) -> Vectors:
    """(n, …) → (n, D) float32 of unit length; zeros stay."""
    rows = np.asarray(x).reshape(len(x), -1)
    rows = np.asarray(rows, np.float32) / np.float32(255 if rows.dtype == np.uint8 else 1)
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12), np.float32)


def top(cosines: Vectors, k: int, first: int) -> tuple[Vectors, npt.NDArray[np.int64]]:
    """The k largest of each row, best first, equal ones by column; columns are positions from `first`."""
    import torch

    k = min(k, cosines.shape[1])
    if not k:
        return cosines[:, :0], np.zeros((len(cosines), 0), np.int64)
    values, columns = torch.from_numpy(cosines).topk(k, sorted=True)
    found, where = values.numpy(), columns.numpy()
    # topk names any of equal ones: rows in which the k-th occurs beyond those taken, or twice among them, are sorted.
    tied = (cosines >= found[:, -1:]).sum(1) > k
    if k > 1:
        tied |= (found[:, 1:] == found[:, :-1]).any(1)
    for row in np.flatnonzero(tied).tolist():
        order = np.argsort(-cosines[row], kind="stable")[:k]
        found[row], where[row] = cosines[row, order], order
    return found, where + first


def merged(
    a: tuple[Vectors, npt.NDArray[np.int64]], b: tuple[Vectors, npt.NDArray[np.int64]], k: int
) -> tuple[Vectors, npt.NDArray[np.int64]]:
    """The k best of two lists, best first; equal ones: the first list's."""
    cosines, positions = np.concatenate([a[0], b[0]], 1), np.concatenate([a[1], b[1]], 1)
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(cosines, order, 1), np.take_along_axis(positions, order, 1)
