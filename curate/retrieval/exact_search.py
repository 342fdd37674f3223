"""Vectors on disk → the nearest and the farthest images of every concept in every bucket, in one pass.

Exact, whatever the number of threads or machines: a fast pass in float32 keeps everything that could be among the best
given its rounding error, and what it kept is scored again in float64. Equal scores are ordered by id.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from curate.core.errors import BadConfig, BadInput
from curate.core.executor import Executor
from curate.encoders import Vectors
from curate.retrieval.vector_store import Ints, Part, Store

Side = Literal["top", "bottom"]
Kind = Literal["exact", "ivf", "hnsw"]
BLOCK_BYTES = 4 << 20  # vectors that are multiplied at a time: they and their float32 copy stay in the cache
SPAN = 8  # blocks between two looks at what is good enough
MEMORY = 256 << 20  # bytes for candidates; more concepts than fit are searched in several passes
SAMPLE = 16  # queries whose exact answer an approximate index is held against


@dataclass(frozen=True)
class Ranked:
    """One concept in one bucket: rows of the store (k,) and their cosines (k,) float32, best first; for the bottom
    side lowest first."""

    rows: Ints
    scores: Vectors


@dataclass(frozen=True)
class Found:
    """ranked: [side][bucket][concept]. histogram: bucket → (concepts, bins) counts of cosines over [-1, 1]."""

    ranked: dict[str, dict[int, list[Ranked]]]
    histogram: dict[int, Ints]


@dataclass(frozen=True)
class _Task:
    """A stretch of parts to look through: (part, its first row in the store, from, to, buckets of these rows)."""

    pieces: tuple[tuple[Part, int, int, int, npt.NDArray[np.int32]], ...]
    queries: Vectors
    groups: tuple[int, ...]
    asked: tuple[int, ...]
    depth: int
    sides: tuple[Side, ...]
    slack: float
    bins: int


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
) -> Found:
    """Rank every image of the `asked` buckets under every concept; the best `depth` of each side are kept.

    queries: (Q, D) float32, unit length. groups: the first query of each concept, whose score is the highest of its
    queries' cosines (default: one query a concept). Cosines are those of the stored vectors, computed in float64.
    Private memory: about `memory` and 8 MiB a thread, whatever the number of vectors.
    """
    groups = list(range(len(queries))) if groups is None else list(groups)
    _check(store, queries, depth)
    executor = executor or Executor()
    ends = [*groups[1:], len(queries)]
    each = 2 * len(sides) * executor.workers * max(1, len(asked)) * min(depth, max(1, len(store))) * 16  # bytes
    step = max(1, memory // each)
    ranked: dict[str, dict[int, list[Ranked]]] = {side: {b: [] for b in asked} for side in sides}
    histogram: dict[int, list[Ints]] = {b: [] for b in asked}
    for first in range(0, len(groups), step):
        low, high = groups[first], ends[min(first + step, len(groups)) - 1]
        inner = tuple(g - low for g in groups[first : first + step])
        for side, of_bucket in _one_pass(
            store, queries[low:high], depth, tuple(asked), inner, tuple(sides), executor, bins, histogram
        ).items():
            for bucket, lists in of_bucket.items():
                ranked[side][bucket] += lists
    return Found(ranked, {b: np.concatenate(h) for b, h in histogram.items()} if bins else {})


def _check(store: Store, queries: Vectors, depth: int) -> None:
    if depth < 1:
        raise BadConfig(f"The depth of a search is {depth}.", "Expected at least 1.")
    if len(store) and store.width != queries.shape[1]:
        raise BadInput(
            f"The stored vectors are {store.width} wide and the text encoder's are {queries.shape[1]}.",
            "Expected one model for images and texts.",
            "Set embed.model and embed.weights to the model that made the vectors.",
        )


def _one_pass(
    store: Store,
    queries: Vectors,
    depth: int,
    asked: tuple[int, ...],
    groups: tuple[int, ...],
    sides: tuple[Side, ...],
    executor: Executor,
    bins: int,
    histogram: dict[int, list[Ints]],
) -> dict[str, dict[int, list[Ranked]]]:
    # |fl(x·q) − x·q| ≤ D u Σ|x q| ≤ D u for unit vectors [Higham 2002, 3.5]; twice, for both ends of a comparison
    slack = 4.0 * max(1, store.width) * 2.0**-24
    tasks = [_Task(pieces, queries, groups, asked, depth, sides, slack, bins) for pieces in _stretches(store, executor)]
    kept: dict[str, list[_Kept]] = {side: [] for side in sides}
    bars = np.zeros((len(asked), len(groups), bins), np.int64)
    for _, (found, bar) in executor.run_tasks(_scan, tasks, threads=True):
        for side in sides:
            kept[side].append(found[side])
        bars += bar
    for i, bucket in enumerate(asked):
        histogram[bucket].append(bars[i])
    return {side: _settle(store, queries, groups, asked, depth, side, slack, kept[side]) for side in sides}


def _stretches(store: Store, executor: Executor) -> Iterator[tuple[tuple[Part, int, int, int, Any], ...]]:
    """The rows of the store in as many equal stretches as there are workers (Ray: four times as many)."""
    n = len(store)
    pieces = max(1, min(executor.workers * (4 if executor.kind == "ray" else 1), n // 4096))
    edges = np.linspace(0, n, pieces + 1).astype(np.int64)
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        found = []
        for part, start in zip(store.parts, store.starts.tolist(), strict=False):
            a, b = max(low, start) - start, min(high, start + part.rows) - start
            if a < b:
                found.append((part, start, a, b, store.buckets[start + a : start + b]))
        yield tuple(found)


@dataclass
class _Kept:
    """Rows that may be among the best, flat: cell = position of the bucket × concepts + concept."""

    cells: npt.NDArray[np.int32]
    rows: Ints
    scores: Vectors  # of the bottom side negated, so that more is better


class _Best:
    """Collects what is good enough: the best `depth` of every cell, and what rounding could confuse with them."""

    def __init__(self, cells: int, depth: int, slack: float) -> None:
        self.depth, self.slack = depth, slack
        self.least = np.full(cells, -np.inf, np.float32)
        self._held: list[_Kept] = []
        self._size, self._limit = 0, 2 * cells * depth

    def add(self, kept: _Kept) -> None:
        """Take what passed `least`."""
        if len(kept.rows):
            self._held.append(kept)
            self._size += len(kept.rows)
            if self._size > self._limit:
                self.shrink()

    def shrink(self) -> _Kept:
        """Forget what cannot be among the best any more."""
        kept = joined(self._held)
        order = np.argsort(kept.cells, kind="stable")
        edges = np.searchsorted(kept.cells[order], np.arange(len(self.least) + 1))
        for cell in np.flatnonzero(np.diff(edges) > self.depth).tolist():
            scores = kept.scores[order[edges[cell] : edges[cell + 1]]]
            self.least[cell] = np.partition(scores, len(scores) - self.depth)[len(scores) - self.depth] - self.slack
        good = kept.scores >= self.least[kept.cells]
        kept = _Kept(kept.cells[good], kept.rows[good], kept.scores[good])
        self._held, self._size = [kept], len(kept.rows)
        self._limit = max(self._limit, 2 * self._size)
        return kept


def joined(held: Sequence[_Kept]) -> _Kept:
    """Several in one."""
    if not held:
        return _Kept(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.float32))
    return _Kept(*(np.concatenate([getattr(k, name) for k in held]) for name in ("cells", "rows", "scores")))


def _scan(task: _Task) -> tuple[dict[str, _Kept], Ints]:
    """One stretch: scores in float32, block by block, each block read into one small buffer."""
    import torch

    torch.set_num_threads(1)  # of this thread: the stretches are the parallelism
    concepts, buckets, width = len(task.groups), len(task.asked), task.queries.shape[1]
    position = np.full(max([*task.asked, 0], default=0) + 2, -1, np.int32)
    position[list(task.asked)] = np.arange(buckets)
    best = {side: _Best(buckets * concepts, task.depth, task.slack) for side in task.sides}
    bars = np.zeros((buckets, concepts, task.bins), np.int64)
    queries = torch.from_numpy(np.ascontiguousarray(task.queries))
    single = len(task.groups) == len(task.queries)
    rows = max(64, BLOCK_BYTES // (4 * width))
    wide = torch.empty((rows, width))
    raw = {"float32": wide, "float16": torch.empty((rows, width), dtype=torch.float16)}
    product = np.empty((concepts, SPAN * rows), np.float32)
    for part, start, low, high, of in task.pieces:
        into = raw[part.dtype]
        view = into.numpy().reshape(-1).view(np.uint8).data
        item = into.element_size() * width
        with part.path.open("rb", buffering=0) as file:
            for span in range(low, high, SPAN * rows):
                stop = min(span + SPAN * rows, high)
                for block in range(span, stop, rows):
                    n = min(rows, stop - block)
                    _fill(file.fileno(), view[: n * item], part, block * item)
                    if part.dtype == "float16":
                        wide[:n].copy_(into[:n])
                    scores = torch.mm(queries, wide[:n].t()).numpy()
                    target = product[:, block - span : block - span + n]
                    np.copyto(target, scores if single else np.maximum.reduceat(scores, task.groups, axis=0))
                here = of[span - low : stop - low]
                where = position[np.where((here < 0) | (here >= len(position)), len(position) - 1, here)]
                _keep(product[:, : stop - span], where, start + span, concepts, best, bars, task.bins)
    return {side: b.shrink() for side, b in best.items()}, bars


def _fill(descriptor: int, view: memoryview, part: Part, offset: int) -> None:
    done = 0
    while done < len(view):
        got = os.preadv(descriptor, [view[done:]], part.offset + offset + done)
        if got == 0:
            raise BadInput(f"{part.path} ends before its {part.rows:,} vectors do.", "", "Embed the shard again.")
        done += got


def _keep(
    scores: Vectors,
    where: npt.NDArray[np.int32],
    first: int,
    concepts: int,
    best: Mapping[Side, _Best],
    bars: Ints,
    bins: int,
) -> None:
    """scores: (concepts, n). where: (n,) position of each row's bucket, -1: not asked."""
    for side, collector in best.items():
        signed = scores if side == "top" else -scores
        # the last line, which -1 means, is of the rows that are not asked: nothing is good enough there
        least = np.vstack([collector.least.reshape(-1, concepts), np.full((1, concepts), np.inf, np.float32)])
        concept, column = np.nonzero(signed >= least.T[:, where])
        cells = where[column] * concepts + concept
        collector.add(_Kept(cells.astype(np.int32), column + first, signed[concept, column]))
    if bins:
        asked = np.flatnonzero(where >= 0)
        bar = np.clip(((scores[:, asked] + 1) * (bins / 2)).astype(np.int64), 0, bins - 1)
        bar += (where[asked] * concepts + np.arange(concepts)[:, None]) * bins
        bars += np.bincount(bar.ravel(), minlength=bars.size).reshape(bars.shape)


def _settle(
    store: Store,
    queries: Vectors,
    groups: tuple[int, ...],
    asked: tuple[int, ...],
    depth: int,
    side: str,
    slack: float,
    kept: Sequence[_Kept],
) -> dict[int, list[Ranked]]:
    """What all stretches kept → exact scores, exact order."""
    collector = _Best(len(asked) * len(groups), depth, slack)
    for one in kept:
        collector.add(one)
    merged = collector.shrink()
    order = np.argsort(merged.cells, kind="stable")
    edges = np.searchsorted(merged.cells[order], np.arange(len(asked) * len(groups) + 1))
    ends = [*groups[1:], len(queries)]
    found: dict[int, list[Ranked]] = {b: [] for b in asked}
    for i, bucket in enumerate(asked):
        for c, (low, high) in enumerate(zip(groups, ends, strict=True)):
            cell = i * len(groups) + c
            rows = np.sort(merged.rows[order[edges[cell] : edges[cell + 1]]])
            found[bucket].append(rank(store, rows, queries[low:high], depth, side))
    return found


def rank(store: Store, rows: Ints, queries: Vectors, depth: int, side: str = "top") -> Ranked:
    """The best `depth` of some rows by their exact score, equal scores by id."""
    scores = cosines(store, rows, queries)
    names = np.array(store.names(rows), dtype=np.str_)
    order = np.lexsort((names, scores if side == "bottom" else -scores))[:depth]
    return Ranked(rows[order], scores[order])


def cosines(store: Store, rows: Ints, queries: Vectors, block: int = 4096) -> Vectors:
    """The highest of the queries' cosines for some rows: summed in float64, rounded to float32.

    Rounded once, equal vectors have equal scores on every machine, which float32 sums do not promise.
    """
    out = np.empty(len(rows), np.float32)
    wide = queries.astype(np.float64)
    for low in range(0, len(rows), block):
        x = store.take(rows[low : low + block]).astype(np.float64)
        out[low : low + block] = np.stack([np.einsum("nd,d->n", x, q) for q in wide]).max(0)
    return out
