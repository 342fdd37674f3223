"""A growing memory of vectors, searched by cosine: exactly, in blocks, or by a faiss index whose recall is measured.

Vectors are stored in blocks, so that the memory grows without copies; blocks above a limit of main memory are mapped
files. The cosines of a block with a batch are one product, in bfloat16 if the processor multiplies it, or on a GPU.
Every vector that could be among the nearest, given the rounding error, is then computed again in float32 on the CPU,
one by one, so that answers are exact and do not depend on blocks, batches or machines. Among equal cosines the older
vector comes first.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from curate.core.errors import BadArray

Vectors = npt.NDArray[np.float32]
ROWS = 16_384  # vectors per block
MEASURED = 100  # samples on which the recall of an index is measured
ONE_BY_ONE = 256  # samples per block of `stream`
# Largest error of a product. bfloat16: both factors are rounded by at most 2⁻⁹ of their value, and Σ |xᵢqᵢ| ≤ 1 for
# unit vectors; the sum is rounded once more, and so is the value that it is compared with; sums are in float32.
# A GPU may round the factors of a float32 product by 2⁻¹¹ (TF32).
OFF = {"bfloat16": 2**-8 + 2 * 2**-9 + 1e-4, "float32": 1e-5, "device": 2**-10 + 1e-4}
SOME = 2048  # vectors of the first block that give a lower bound of the nearest cosines
AT_ONCE = 512  # pairs whose vectors stay in the cache between gathering and product
FEW = 0.02  # share of a block's cosines: if more are candidates, the product is repeated in float32
Neighbours = tuple[Vectors, npt.NDArray[np.int64]]


@dataclass
class Memory:
    """Unit vectors in the order in which they were added."""

    width: int
    """length D of a vector"""
    exact_below: int = 1_000_000
    """vectors up to which a search is exact; above, an index is used"""
    limit_mb: int = 4096
    """main memory for vectors; the rest is kept in files"""
    kind: str = "hnsw"
    """index: hnsw or ivf"""
    device: str = "cpu"
    """where products are computed; a GPU holds a copy of all vectors"""
    n: int = 0
    """number of vectors"""
    recalls: list[tuple[int, float]] = field(default_factory=list)
    """(vectors, recall of the index against exact search), measured whenever the memory has doubled"""
    blocks: list[Vectors] = field(default_factory=list)
    """the vectors, ROWS in each block"""
    copies: list[Any] = field(default_factory=list)
    """the blocks for products: on the device, or in bfloat16 if that is fast; none: the blocks themselves serve"""
    index: Any = None
    """the faiss index, if there is one"""
    folder: Any = None
    """temporary folder of blocks in files"""

    def add(self, x: npt.NDArray[Any]) -> None:
        """Append x (n, D), scaled to unit length. Raises BadArray for another width."""
        x = unit(x)
        if x.shape[1] != self.width:
            raise BadArray(
                f"The vectors have {x.shape[1]} numbers.", f"Expected {self.width}, as the vectors in memory."
            )
        done = 0
        while done < len(x):
            filled = self.n % ROWS
            if filled == 0:
                self._open()
            part = x[done : done + ROWS - filled]
            self.blocks[-1][filled : filled + len(part)] = part
            if self.copies:
                self.copies[-1][filled : filled + len(part)] = _tensor(part)
            self.n += len(part)
            done += len(part)
        if self.index is not None:
            self.index.add(x)
        elif self.n > self.exact_below:
            self._build()

    def search(self, q: npt.NDArray[Any], k: int) -> Neighbours:
        """q (m, D) → cosines (m, k) and positions (m, k) of the nearest, best first; k is limited by their number."""
        k = min(k, self.n)
        if self.index is not None:
            cosines, positions = self.index.search(unit(q), k)
            return cosines, positions
        return self.exact(unit(q), k)

    def exact(self, q: Vectors, k: int) -> Neighbours:
        """Like `search`, always exact; q of unit length."""
        if len(q) > ONE_BY_ONE:
            parts = [self.exact(q[low : low + ONE_BY_ONE], k) for low in range(0, len(q), ONE_BY_ONE)]
            return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
        best = np.full((len(q), k), -np.inf, np.float32), np.full((len(q), k), -1, np.int64)
        for number, block in enumerate(self.blocks):
            size = min(ROWS, self.n - number * ROWS)
            copy = self.copies[number][:size] if self.copies else None
            best = nearest(q, block[:size], k, best, number * ROWS, copy)
        return best

    def stream(self, x: npt.NDArray[Any], k: int) -> Neighbours:
        """Search for each row of x (n, D) among the memory and the rows before it, then append them all.

        Exactly equal to searching and adding one row after the other; a block of rows shares one product with the
        memory and one with itself. If there are fewer than k: cosine −inf, position −1.
        """
        parts: list[Neighbours] = []
        for low in range(0, len(x), ONE_BY_ONE):
            q = unit(x[low : low + ONE_BY_ONE])
            best = self.exact(q, k)
            parts.append(nearest(q, q, k, best, self.n, earlier=True))
            self.add(q)
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])

    def __getstate__(self) -> dict[str, Any]:
        """For checkpoints: vectors as arrays. Raises TypeError for a memory with an index, which faiss stores in a
        format that must not be read from a file of somebody else."""
        if self.index is not None:
            raise TypeError(f"a memory of {self.n:,} vectors has an approximate index")
        blocks = [np.array(b[: min(ROWS, self.n - i * ROWS)]) for i, b in enumerate(self.blocks)]
        return vars(self) | {"blocks": blocks, "folder": None, "copies": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        blocks = state.pop("blocks")
        vars(self).update(state, blocks=[], copies=[])
        for vectors in blocks:
            self._open()
            self.blocks[-1][: len(vectors)] = vectors
            if self.copies:
                self.copies[-1][: len(vectors)] = _tensor(vectors)

    @property
    def nbytes(self) -> int:
        """Bytes of the vectors."""
        return self.n * self.width * 4

    def _open(self) -> None:
        """Add a block, and its copy for products."""
        import torch

        self.blocks.append(self._block())
        if self.device != "cpu":
            self.copies.append(torch.empty((ROWS, self.width), device=self.device))
        elif halves():
            self.copies.append(torch.empty((ROWS, self.width), dtype=torch.bfloat16))

    def _block(self) -> Vectors:
        """Space for a block: in main memory, or in a file."""
        size = ROWS * self.width * 4
        if (len(self.blocks) + 1) * size <= self.limit_mb * 2**20:
            return np.empty((ROWS, self.width), np.float32)
        if self.folder is None:
            self.folder = tempfile.TemporaryDirectory(prefix="driftline-memory-")
        place = Path(self.folder.name) / f"{len(self.blocks)}.f32"
        return np.memmap(place, np.float32, "w+", shape=(ROWS, self.width))

    def _build(self) -> None:
        """Build an index of all vectors: HNSW [M 25, efConstruction 500: EvalOCL], or 4 √n inverted lists, of which an
        eighth is searched."""
        import faiss

        if self.kind == "ivf":
            lists = max(1, int(4 * self.n**0.5))
            centres = faiss.IndexFlatIP(self.width)
            self.index = faiss.IndexIVFFlat(centres, self.width, lists, faiss.METRIC_INNER_PRODUCT)
            first = self.blocks[0][: min(ROWS, self.n)]
            self.index.cp.min_points_per_centroid = 1
            self.index.train(np.ascontiguousarray(first))
            self.index.nprobe = max(1, lists // 8)
        else:
            self.index = faiss.IndexHNSWFlat(self.width, 25, faiss.METRIC_INNER_PRODUCT)
            self.index.hnsw.efConstruction = 500
            self.index.hnsw.efSearch = 128
        for number, block in enumerate(self.blocks):
            self.index.add(np.ascontiguousarray(block[: min(ROWS, self.n - number * ROWS)]))

    def measure(self, q: npt.NDArray[Any], k: int) -> float | None:
        """Share of the k nearest of q that the index finds; None while searches are exact. Measured and stored in
        `recalls` whenever the memory has doubled."""
        if self.index is None or (self.recalls and self.n < 2 * self.recalls[-1][0]):
            return self.recalls[-1][1] if self.recalls else None
        self.recalls.append((self.n, self.recall(q, k)))
        return self.recalls[-1][1]

    def recall(self, q: npt.NDArray[Any], k: int) -> float:
        """Share of the k nearest of q (m, D) that `search` finds; 1 while searches are exact."""
        if self.index is None:
            return 1.0
        q, k = unit(q), min(k, self.n)
        pairs = zip(self.exact(q, k)[1].tolist(), self.index.search(q, k)[1].tolist(), strict=True)
        return float(np.mean([len(set(a) & set(b)) / k for a, b in pairs]))


def unit(x: npt.NDArray[Any]) -> Vectors:
    """(n, …) → (n, D) float32 of unit length; zero vectors stay zero."""
    rows = np.asarray(x).reshape(len(x), -1)
    rows = rows / np.float32(255) if rows.dtype == np.uint8 else np.asarray(rows, np.float32)
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12), np.float32)


class QuerySlices:
    """Arrays of which slices are searched for again: a slice is recognised by its address in main memory, without a
    comparison."""

    def __init__(self, parts: Sequence[npt.NDArray[Any]]) -> None:
        self.parts = list(parts)
        self.starts = np.cumsum([0, *(len(p) for p in parts)]).tolist()

    def vectors(self) -> Vectors:
        """All of them (N, D), of unit length."""
        return unit(np.concatenate([np.asarray(p).reshape(len(p), -1) for p in self.parts]))

    def rows_of(self, x: npt.NDArray[Any]) -> slice | None:
        """The rows of `vectors` that x is a view of; None if it is none."""
        for part, start in zip(self.parts, self.starts, strict=False):
            if isinstance(x, np.ndarray) and isinstance(part, np.ndarray) and x.dtype == part.dtype and len(x):
                offset = x.__array_interface__["data"][0] - part.__array_interface__["data"][0]
                row, rest = divmod(offset, part.strides[0])
                if not rest and 0 <= row <= len(part) - len(x) and x.strides[1:] == part.strides[1:]:
                    return slice(start + row, start + row + len(x))
        return None


class TrackedQueries:
    """Queries whose nearest neighbours are kept up to date: searched once, then compared with new vectors only."""

    def __init__(self, memory: Memory, parts: Sequence[npt.NDArray[Any]], k: int) -> None:
        self.k, self.slices = k, QuerySlices(parts)
        self.q = self.slices.vectors()
        self.best = memory.exact(self.q, k)
        self.n = memory.n

    def update(self, memory: Memory) -> None:
        """Merge the vectors that were added since."""
        if memory.n - self.n > 1:
            self.best = memory.exact(self.q, self.k)
        elif memory.n > self.n:
            new = memory.blocks[self.n // ROWS][self.n % ROWS]
            # Queries whose nearest may change; their cosines are summed like those of single pairs.
            kth = self.best[0][:, -1]
            # By torch: NumPy's product with one vector wakes all cores, whose waiting takes longer than the product.
            rows = np.flatnonzero(_tensor(self.q).mv(_tensor(new)).numpy() >= kth - OFF["float32"])
            cosines = (self.q[rows] * new).sum(1)
            better = cosines > kth[rows]
            rows, cosines = rows[better], cosines[better]
            scores = np.concatenate([self.best[0][rows], cosines[:, None]], 1)
            places = np.concatenate([self.best[1][rows], np.full((len(rows), 1), self.n)], 1)
            order = np.argsort(-scores, axis=1, kind="stable")[:, : self.k]  # among equals the older first
            self.best[0][rows] = np.take_along_axis(scores, order, 1)
            self.best[1][rows] = np.take_along_axis(places, order, 1)
        self.n = memory.n

    def nearest(self, x: npt.NDArray[Any]) -> Neighbours | None:
        """Cosines and positions for a slice of the queries; None for other arrays."""
        rows, k = self.slices.rows_of(x), min(self.k, self.n)
        return None if rows is None else (self.best[0][rows, :k], self.best[1][rows, :k])


@cache
def halves() -> bool:
    """Whether this processor multiplies bfloat16 faster than float32."""
    from eval.engine.fused import has_half

    return has_half()


def _tensor(x: Vectors) -> Any:
    import torch

    return torch.from_numpy(np.ascontiguousarray(x))


def nearest(
    q: Vectors, x: Vectors, k: int, best: Neighbours, first: int, copy: Any = None, earlier: bool = False
) -> Neighbours:
    """The k nearest of q (m, D) among those of `best` (m, k) and x (n, D), whose positions start at `first`.

    If there are fewer: cosine −inf, position −1. copy: x in bfloat16, or on a GPU. earlier: q is x, and a row may only
    find rows before it.
    """
    import torch

    with_ = _tensor(x) if copy is None else copy
    off = OFF["float32" if copy is None else "bfloat16" if copy.dtype is torch.bfloat16 else "device"]
    about = _tensor(q).to(with_) @ with_.T
    kth = torch.from_numpy(best[0][:, -1:]).to(about.device)  # the k-th cosine; a candidate may exceed it
    if not earlier and len(x) >= k and bool(torch.isinf(kth).any()):
        # No k-th yet: the k-th of all is at least the k-th of some.
        kth = torch.maximum(kth, about[:, : max(SOME, k)].float().topk(k).values[:, -1:] - off)
    picked = about >= (kth - off).to(about.dtype)
    if earlier:
        picked &= torch.ones_like(picked).tril_(-1)
    places = picked.flatten().nonzero().squeeze(1).cpu().numpy()
    if copy is not None and len(places) > FEW * picked.numel() + 8 * k * len(q):
        return nearest(q, x, k, best, first, None, earlier)
    rows, columns = np.divmod(places, len(x))
    cosines = np.concatenate([best[0].ravel(), _cosines(q, x, rows, columns)])
    positions = np.concatenate([best[1].ravel(), columns + first])
    query = np.concatenate([np.repeat(np.arange(len(q)), k), rows])
    order = np.lexsort((positions, -cosines, query))
    starts = np.searchsorted(query[order], np.arange(len(q)))
    best_k = order[starts[:, None] + np.arange(k)]
    return cosines[best_k], positions[best_k]


def _cosines(q: Vectors, x: Vectors, rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64]) -> Vectors:
    """Cosines of single pairs, each summed in the same way, independent of its position."""
    out = np.empty(len(rows), np.float32)
    for low in range(0, len(rows), AT_ONCE):
        part = slice(low, low + AT_ONCE)
        out[part] = (q[rows[part]] * x[columns[part]]).sum(1)
    return out
