"""Exact search: the nearest and the farthest images of every concept in every bucket, in one pass over the vectors.

The result does not depend on the number of threads or machines: a fast pass in float32 keeps every image that could be
among the best within its rounding error, and these are scored again in float64. Equal scores are ordered by id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from curate.core.errors import BadConfig, BadInput
from curate.core.executor import Executor
from curate.core.system.calls import read_into
from curate.encoders import Vectors
from curate.retrieval.vector_store import Ints, Store, VectorFile

Side = Literal["top", "bottom"]
BLOCK_BYTES = 4 << 20  # vectors per matrix product: small enough that they and their float32 copy stay in the cache
SPAN = 8  # blocks whose scores are compared with the thresholds at once
MEMORY = 256 << 20  # bytes for candidates; if the concepts need more, they are searched in several passes


@dataclass(frozen=True)
class Ranked:
    """The ranked images of one concept in one bucket: best first, on the bottom side lowest first."""

    rows: Ints
    """(k,) rows of the store"""
    scores: Vectors
    """(k,) float32 cosines"""


@dataclass(frozen=True)
class SearchResult:
    """What `search` returns."""

    ranked: dict[Side, dict[int, list[Ranked]]]
    """[side][bucket][concept]"""
    histogram: dict[int, Ints]
    """bucket → (concepts, bins) counts of cosines over [-1, 1]"""


Piece = tuple[VectorFile, int, int, int, npt.NDArray[np.int32]]
"""a file, its first row in the store, the first and the end row in the file, and the buckets of these rows"""


@dataclass(frozen=True)
class _Pass:
    """What one pass over the vectors looks for; the fields are arguments of `search`."""

    queries: Vectors
    groups: tuple[int, ...]
    asked: tuple[int, ...]
    depth: int
    sides: tuple[Side, ...]
    bins: int

    def collectors(self) -> dict[Side, _Collector]:
        """An empty collector for each side."""
        # |fl(x·q) − x·q| ≤ D u Σ|x q| ≤ D u for unit vectors [Higham 2002, 3.5]; twice, for both sides of a comparison
        slack = 4.0 * max(1, self.queries.shape[1]) * 2.0**-24
        return {side: _Collector(len(self.asked) * len(self.groups), self.depth, slack) for side in self.sides}

    def counts(self) -> Ints:
        """An empty histogram."""
        return np.zeros((len(self.asked), len(self.groups), self.bins), np.int64)


@dataclass(frozen=True)
class _Task:
    """A range of rows to scan."""

    pieces: tuple[Piece, ...]
    wanted: _Pass


def search(
    store: Store,
    queries: Vectors,
    depth: int,
    asked: Sequence[int],
    groups: Sequence[int] | None = None,
    sides: Sequence[Side] = ("top", "bottom"),
    executor: Executor | None = None,
    memory: int = MEMORY,
    bins: int = 0,
) -> SearchResult:
    """Rank the images of the `asked` buckets under every concept and keep the best `depth` of each side.

    queries: (Q, D) float32, unit length. groups: the first query of each concept (default: one query per concept); the
    score of a concept is the highest cosine of its queries, computed from the stored vectors in float64. bins: of the
    histograms of cosines; 0: none. Private memory: about `memory` bytes and 8 MiB per thread, for any number of
    vectors.
    """
    groups = list(range(len(queries))) if groups is None else list(groups)
    check_search(store, queries, depth)
    executor = executor or Executor()
    ends = [*groups[1:], len(queries)]
    per_concept = 2 * len(sides) * executor.workers * max(1, len(asked)) * min(depth, max(1, len(store))) * 16  # bytes
    step = max(1, memory // per_concept)
    ranked: dict[Side, dict[int, list[Ranked]]] = {side: {b: [] for b in asked} for side in sides}
    histograms = []
    for first in range(0, len(groups), step):
        low, high = groups[first], ends[min(first + step, len(groups)) - 1]
        pass_groups = tuple(g - low for g in groups[first : first + step])
        wanted = _Pass(queries[low:high], pass_groups, tuple(asked), depth, tuple(sides), bins)
        collectors, counts = wanted.collectors(), wanted.counts()
        tasks = [_Task(pieces, wanted) for pieces in _ranges(store, executor)]
        for _, (candidates, task_counts) in executor.run_tasks(_scan, tasks, threads=True):
            for side, collector in collectors.items():
                collector.add(candidates[side])
            counts += task_counts
        histograms.append(counts)
        for side, collector in collectors.items():
            for bucket, lists in _rank_all(store, wanted, side, collector.shrink()).items():
                ranked[side][bucket] += lists
    histogram = dict(zip(asked, np.concatenate(histograms, axis=1), strict=True)) if bins else {}
    return SearchResult(ranked, histogram)


def check_search(store: Store, queries: Vectors, depth: int) -> None:
    """Raise BadConfig for a depth below 1, BadInput if vectors and queries have different widths."""
    if depth < 1:
        raise BadConfig(f"The depth of a search is {depth}.", "Expected at least 1.")
    if len(store) and store.width != queries.shape[1]:
        raise BadInput(
            f"The stored vectors are {store.width} wide and the text encoder's are {queries.shape[1]}.",
            "Expected one model for images and texts.",
            "Set embed.model and embed.weights to the model that made the vectors.",
        )


def _ranges(store: Store, executor: Executor) -> Iterator[tuple[Piece, ...]]:
    """The rows of the store in as many equal ranges as there are workers (Ray: four times as many)."""
    n = len(store)
    ranges = max(1, min(executor.workers * (4 if executor.kind == "ray" else 1), n // 4096))
    edges = np.linspace(0, n, ranges + 1).astype(np.int64)
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        pieces = []
        for file, start in zip(store.files, store.starts.tolist(), strict=False):
            a, b = max(low, start) - start, min(high, start + file.rows) - start
            if a < b:
                pieces.append((file, start, a, b, store.buckets[start + a : start + b]))
        yield tuple(pieces)


@dataclass
class _Candidates:
    """n rows that may be among the best of their cell."""

    cells: npt.NDArray[np.int32]
    """(n,) position of the bucket × number of concepts + concept"""
    rows: Ints
    """(n,)"""
    scores: Vectors
    """(n,) float32; negated on the bottom side, so that higher is better"""


class _Collector:
    """Collects the best `depth` rows of every cell, and all rows whose score differs from theirs only by rounding."""

    def __init__(self, cells: int, depth: int, slack: float) -> None:
        self.depth, self.slack = depth, slack
        self.least = np.full(cells, -np.inf, np.float32)  # lower scores cannot be among the best any more
        self._collected: list[_Candidates] = []
        self._size, self._limit = 0, 2 * cells * depth

    def add(self, candidates: _Candidates) -> None:
        """Add rows with scores from `least` on."""
        if len(candidates.rows):
            self._collected.append(candidates)
            self._size += len(candidates.rows)
            if self._size > self._limit:
                self.shrink()

    def shrink(self) -> _Candidates:
        """Raise `least` and drop the rows below it."""
        kept = _joined(self._collected)
        order = np.argsort(kept.cells, kind="stable")
        edges = np.searchsorted(kept.cells[order], np.arange(len(self.least) + 1))
        for cell in np.flatnonzero(np.diff(edges) > self.depth).tolist():
            scores = kept.scores[order[edges[cell] : edges[cell + 1]]]
            self.least[cell] = np.partition(scores, len(scores) - self.depth)[len(scores) - self.depth] - self.slack
        good = kept.scores >= self.least[kept.cells]
        kept = _Candidates(kept.cells[good], kept.rows[good], kept.scores[good])
        self._collected, self._size = [kept], len(kept.rows)
        self._limit = max(self._limit, 2 * self._size)
        return kept


def _joined(collected: Sequence[_Candidates]) -> _Candidates:
    if not collected:
        return _Candidates(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.float32))
    return _Candidates(*(np.concatenate([getattr(c, f.name) for c in collected]) for f in fields(_Candidates)))


def _scan(task: _Task) -> tuple[dict[Side, _Candidates], Ints]:
    """Score one range of rows in float32, block by block; each block is read into the same small buffer."""
    import torch

    torch.set_num_threads(1)  # of this thread: the ranges are the parallelism
    wanted, width = task.wanted, task.wanted.queries.shape[1]
    position = np.full(max([*wanted.asked, 0]) + 2, -1, np.int32)
    position[list(wanted.asked)] = np.arange(len(wanted.asked))
    collectors, counts = wanted.collectors(), wanted.counts()
    queries = torch.from_numpy(np.ascontiguousarray(wanted.queries))
    single = len(wanted.groups) == len(wanted.queries)
    rows = max(64, BLOCK_BYTES // (4 * width))
    wide = torch.empty((rows, width))
    buffers = {"float32": wide, "float16": torch.empty((rows, width), dtype=torch.float16)}
    product = np.empty((len(wanted.groups), SPAN * rows), np.float32)
    for vectors, start, low, high, buckets_of in task.pieces:
        buffer = buffers[vectors.dtype]
        view = buffer.numpy().reshape(-1).view(np.uint8).data
        item = buffer.element_size() * width
        with vectors.path.open("rb", buffering=0) as file:
            for span in range(low, high, SPAN * rows):
                stop = min(span + SPAN * rows, high)
                for block in range(span, stop, rows):
                    n = min(rows, stop - block)
                    _fill(file.fileno(), view[: n * item], vectors, block * item)
                    if vectors.dtype == "float16":
                        wide[:n].copy_(buffer[:n])
                    scores = torch.mm(queries, wide[:n].t()).numpy()
                    target = product[:, block - span : block - span + n]
                    np.copyto(target, scores if single else np.maximum.reduceat(scores, wanted.groups, axis=0))
                bucket = buckets_of[span - low : stop - low]
                positions = position[np.where((bucket < 0) | (bucket >= len(position)), len(position) - 1, bucket)]
                _collect(product[:, : stop - span], positions, start + span, collectors, counts)
    return {side: collector.shrink() for side, collector in collectors.items()}, counts


def _fill(descriptor: int, view: memoryview, vectors: VectorFile, offset: int) -> None:
    """Read bytes of the vectors from `offset` on, until `view` is full."""
    done = 0
    while done < len(view):
        count = read_into(descriptor, view[done:], vectors.offset + offset + done)
        if count == 0:
            raise BadInput(f"{vectors.path} ends before its {vectors.rows:,} vectors do.", "", "Embed the shard again.")
        done += count


def _collect(
    scores: Vectors, positions: npt.NDArray[np.int32], first: int, collectors: Mapping[Side, _Collector], counts: Ints
) -> None:
    """scores: (concepts, n). positions: (n,) position of each row's bucket, -1: not asked. first: row of column 0."""
    _, concepts, bins = counts.shape
    for side, collector in collectors.items():
        signed = scores if side == "top" else -scores
        # index -1, for rows of buckets that are not asked, selects the last line: no score reaches infinity
        least = np.vstack([collector.least.reshape(-1, concepts), np.full((1, concepts), np.inf, np.float32)])
        concept, column = np.nonzero(signed >= least.T[:, positions])
        cells = positions[column] * concepts + concept
        collector.add(_Candidates(cells.astype(np.int32), column + first, signed[concept, column]))
    if bins:
        asked = np.flatnonzero(positions >= 0)
        index = np.clip(((scores[:, asked] + 1) * (bins / 2)).astype(np.int64), 0, bins - 1)
        index += (positions[asked] * concepts + np.arange(concepts)[:, None]) * bins
        counts += np.bincount(index.ravel(), minlength=counts.size).reshape(counts.shape)


def _rank_all(store: Store, wanted: _Pass, side: Side, candidates: _Candidates) -> dict[int, list[Ranked]]:
    """The candidates of all ranges → exact scores in exact order."""
    order = np.argsort(candidates.cells, kind="stable")
    edges = np.searchsorted(candidates.cells[order], np.arange(len(wanted.asked) * len(wanted.groups) + 1)).tolist()
    rows = (np.sort(candidates.rows[order[low:high]]) for low, high in pairwise(edges))
    groups = list(pairwise([*wanted.groups, len(wanted.queries)]))
    return {
        bucket: [rank(store, next(rows), wanted.queries[low:high], wanted.depth, side) for low, high in groups]
        for bucket in wanted.asked
    }


def rank(store: Store, rows: Ints, queries: Vectors, depth: int, side: str = "top") -> Ranked:
    """The best `depth` of some rows by exact score; equal scores are ordered by id."""
    scores = cosines(store, rows, queries)
    names = np.array(store.names(rows), dtype=np.str_)
    order = np.lexsort((names, scores if side == "bottom" else -scores))[:depth]
    return Ranked(rows[order], scores[order])


def cosines(store: Store, rows: Ints, queries: Vectors, block: int = 4096) -> Vectors:
    """For each of some rows the highest cosine of the queries (n,), summed in float64 and rounded to float32.

    Because they are rounded only once, equal vectors have equal scores on every machine; float32 sums would differ.
    """
    out = np.empty(len(rows), np.float32)
    wide = queries.astype(np.float64)
    for low in range(0, len(rows), block):
        x = store.take(rows[low : low + block]).astype(np.float64)
        out[low : low + block] = np.stack([np.einsum("nd,d->n", x, q) for q in wide]).max(0)
    return out
