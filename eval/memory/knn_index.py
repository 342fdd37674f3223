"""A growing memory of vectors, searched by cosine: exactly, in blocks, or by a faiss index whose recall is measured.

Vectors are stored in blocks, so that the memory grows without copies; blocks above a limit of main memory are mapped
files. The cosines of a block with a batch are one product, in bfloat16 if the processor multiplies it, or on a GPU.
Every vector that could be among the nearest, given the rounding error, is then computed again in float32 on the CPU,
one by one, so that answers are exact and do not depend on blocks, batches or machines. Most products are read once: of
GROUP neighbours only the largest is looked at. Among equal cosines the older vector comes first.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadArray
from driftline.curate.core.late import torch
from driftline.curate.core.vectors import unit as of_length_one
from driftline.eval.engine.fused import has_half as halves

Vectors = npt.NDArray[np.float32]
ROWS = 16_384  # vectors per block
MEASURED = 100  # samples on which the recall of an index is measured
ONE_BY_ONE = 256  # samples that are searched for at once in a whole block
GROUP = 64  # cosines of which only the largest is compared at first
MANY = 1 << 16  # cosines from which that is quicker
# Largest error of a product. bfloat16: both factors are rounded by at most 2⁻⁹ of their value, and Σ |xᵢqᵢ| ≤ 1 for
# unit vectors; the sum, which is in float32, is rounded once more.
# A GPU may round the factors of a float32 product by 2⁻¹¹ (TF32).
OFF = {"bfloat16": 2**-8 + 2**-9 + 1e-4, "float32": 1e-5, "device": 2**-10 + 1e-4}
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
    """index: hnsw or ivf; brute: none"""
    device: str = "cpu"
    """where products are computed; a GPU holds a copy of all vectors"""
    n: int = 0
    """number of vectors"""
    recalls: list[tuple[int, float]] = field(default_factory=list)
    """(vectors, recall of the index against exact search), measured whenever the memory has doubled"""
    labels: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """a label of each vector, for those who `learn`, and room for more"""
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
            problem = f"The vectors have {x.shape[1]} numbers."
            raise BadArray(problem, f"Expected {self.width}, as the vectors in memory.")
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
        elif self.n > self.exact_below and self.kind != "brute":
            self._build()

    def learn(self, x: npt.NDArray[Any], y: npt.NDArray[np.int64], k: int) -> None:
        """Append x (n, D) with labels y (n,). k: neighbours with which the recall of an index is measured."""
        while self.n + len(y) > len(self.labels):
            self.labels = np.concatenate([self.labels, np.zeros(max(1024, len(self.labels)), np.int64)])
        self.labels[self.n : self.n + len(y)] = y
        if self.index is not None and (not self.recalls or self.n >= 2 * self.recalls[-1][0]):
            self.recalls.append((self.n, self.recall(x, k)))  # before they are added: they would find themselves
        self.add(x)

    def search(self, q: npt.NDArray[Any], k: int) -> Neighbours:
        """q (m, D) → cosines (m, k) and positions (m, k) of the nearest, best first; k is limited by their number."""
        k = min(k, self.n)
        if self.index is not None:
            cosines, positions = self.index.search(unit(q), k)
            return cosines, positions
        return self.exact(unit(q), k)

    def exact(self, q: Vectors, k: int, best: Neighbours | None = None, since: int = 0) -> Neighbours:
        """Like `search`, always exact; q of unit length. best: the answer among the vectors before `since`, from which
        only the others are searched."""
        best = best or (np.full((len(q), k), -np.inf, np.float32), np.full((len(q), k), -1, np.int64))
        at_once = ONE_BY_ONE * max(1, ROWS // max(1, self.n - since))  # as many cosines as with a whole block
        if len(q) > at_once:
            rows = [slice(low, low + at_once) for low in range(0, len(q), at_once)]
            parts = [self.exact(q[r], k, (best[0][r], best[1][r]), since) for r in rows]
            return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
        for number in range(since // ROWS, len(self.blocks)):
            part = slice(max(0, since - number * ROWS), min(ROWS, self.n - number * ROWS))
            copy = self.copies[number][part] if self.copies else None
            best = nearest(q, self.blocks[number][part], k, best, number * ROWS + part.start, copy)
        return best

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
        """Bytes of the vectors, and of their labels."""
        return self.n * (self.width * 4 + 8 * (len(self.labels) > 0))

    def _open(self) -> None:
        """Add a block, and its copy for products."""
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

    def recall(self, q: npt.NDArray[Any], k: int) -> float:
        """Share of the k nearest of some of q (m, D) that `search` finds; 1 while searches are exact."""
        if self.index is None:
            return 1.0
        q, k = unit(q[:MEASURED]), min(k, self.n)
        pairs = zip(self.exact(q, k)[1].tolist(), self.index.search(q, k)[1].tolist(), strict=True)
        return float(np.mean([len(set(a) & set(b)) / k for a, b in pairs]))


def unit(x: npt.NDArray[Any]) -> Vectors:
    """(n, …) → (n, D) float32 of unit length; zero vectors stay zero."""
    rows = np.asarray(x).reshape(len(x), -1)
    rows = rows / np.float32(255) if rows.dtype == np.uint8 else np.asarray(rows, np.float32)
    return of_length_one(rows)


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
    """Queries whose nearest neighbours are kept: searched once, and when they are asked for again, among the vectors
    that were added since."""

    def __init__(self, memory: Memory, parts: Sequence[npt.NDArray[Any]], k: int) -> None:
        self.memory, self.k, self.slices = memory, k, QuerySlices(parts)
        self.q = self.slices.vectors()
        self.best = memory.exact(self.q, k)
        self.seen = np.full(len(self.q), memory.n)

    def nearest(self, x: npt.NDArray[Any]) -> Neighbours | None:
        """Cosines and positions for a slice of the queries; None for other arrays."""
        if (rows := self.slices.rows_of(x)) is None:
            return None
        for since in np.unique(self.seen[rows]).tolist():
            if since < self.memory.n:
                old = np.arange(rows.start, rows.stop)[self.seen[rows] == since]
                best = self.memory.exact(self.q[old], self.k, (self.best[0][old], self.best[1][old]), since)
                self.best[0][old], self.best[1][old], self.seen[old] = *best, self.memory.n
        k = min(self.k, self.memory.n)
        return self.best[0][rows, :k], self.best[1][rows, :k]


def _tensor(x: Vectors) -> Any:
    return torch.from_numpy(np.ascontiguousarray(x))


def nearest(q: Vectors, x: Vectors, k: int, best: Neighbours, first: int, copy: Any = None) -> Neighbours:
    """The k nearest of q (m, D) among those of `best` (m, k) and x (n, D), whose positions start at `first`.

    If there are fewer: cosine −inf, position −1. copy: x in bfloat16, or on a GPU.
    """
    with_ = _tensor(x) if copy is None else copy
    off = OFF["float32" if copy is None else "bfloat16" if copy.dtype is torch.bfloat16 else "device"]
    about = _tensor(q).to(with_) @ with_.T
    rows, columns = _candidates(about, torch.from_numpy(best[0][:, -1:]).to(about.device) - off, k, off)
    if copy is not None and len(rows) > FEW * about.numel() + 8 * k * len(q):
        return nearest(q, x, k, best, first)
    new = np.flatnonzero(np.bincount(rows, minlength=len(q)))  # the others stay as they are
    cosines = np.concatenate([best[0][new].ravel(), _cosines(q, x, rows, columns)])
    positions = np.concatenate([best[1][new].ravel(), columns + first])
    query = np.concatenate([np.repeat(np.arange(len(new)), k), np.searchsorted(new, rows)])
    order = np.lexsort((positions, -cosines, query))
    best_k = order[np.searchsorted(query[order], np.arange(len(new)))[:, None] + np.arange(k)]
    best = best[0].copy(), best[1].copy()
    best[0][new], best[1][new] = cosines[best_k], positions[best_k]
    return best


def _candidates(about: Any, least: Any, k: int, off: float) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Rows and columns of the cosines (m, n) that may be among the k largest of their row: at least `least` (m, 1), and
    at least 2 · off below the k-th largest of some, `off` being the largest error of a cosine. −inf is none."""
    many = about.shape[1] >= 2 * k * GROUP and about.numel() >= MANY
    grouped = about.shape[1] // GROUP * GROUP if many else 0
    groups = about[:, :grouped].unflatten(1, (-1, GROUP))
    bits = bool(grouped) and about.dtype is torch.bfloat16
    # The largest of a group is one of its cosines: at least k are as large as the k-th of these.
    # Bits of values above 0 are in the order of the values, and torch compares integers several times as fast; of a
    # group without any, one of its cosines is enough.
    by_bits: Any = groups.view(torch.int16).amax(2).view(torch.bfloat16) if bits else None
    some = by_bits if bits else groups.amax(2) if grouped else about
    if some.shape[1] >= k:
        least = torch.maximum(least, some.topk(k, 1).values[:, -1:].float() - 2 * off)
    least = least.clamp_(min=torch.finfo(torch.float32).min)
    if bits and bool((least <= 0).any()):
        some = groups.amax(2)
    rows, columns = (about[:, grouped:] >= least).nonzero().cpu().numpy().T
    if grouped:
        row, group = (some >= least).nonzero().T
        few, column = (groups[row, group] >= least[row]).nonzero().T
        both = torch.stack([row[few], group[few] * GROUP + column]).cpu().numpy()
        rows, columns = np.concatenate([[rows, columns + grouped], both], 1)
    return rows, columns


def _cosines(q: Vectors, x: Vectors, rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64]) -> Vectors:
    """Cosines of single pairs, each summed in the same way, independent of its position."""
    out = np.empty(len(rows), np.float32)
    for low in range(0, len(rows), AT_ONCE):
        part = slice(low, low + AT_ONCE)
        out[part] = (q[rows[part]] * x[columns[part]]).sum(1)
    return out
