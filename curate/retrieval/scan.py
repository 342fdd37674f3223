"""One pass over the vectors: each block is read once, multiplied by all concepts, compared with the lists' thresholds.

A product that will probably stay in its list (the rank scaled by the share of the bucket that was read) is scored in
float64 while the block is in memory; what stays against expectation is read once more in the end. Blocks are read in
shuffled order, so that the share read says how far the lists are whatever the files are sorted by.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadInput
from driftline.curate.core.late import torch
from driftline.curate.core.seeding import rng_for
from driftline.curate.core.system import read_into
from driftline.curate.embedding.vector_store import Ints, VectorFile, VectorStore
from driftline.curate.encoders import Vectors
from driftline.curate.retrieval.best_lists import BestLists

Side = Literal["top", "bottom"]
BLOCK_BYTES = 4 << 20  # vectors that are widened at once: they and their float32 copy stay in the cache
WINDOW = 8192  # rows whose products are compared with the thresholds at once
SHORT = 20  # vectors for each place of the lists from which few of them are read again
MANY = 128  # concepts from which the vectors, not the products, are sorted by bucket
PRODUCTS = 1 << 20  # products that are compared at once, if there are many concepts


Window = tuple[VectorFile, int, int, int]
"""a file, its first row in the store, the first and the end row in the file"""


def sizes(buckets: npt.NDArray[np.int32], asked: Sequence[int]) -> Ints:
    """Rows of each asked bucket."""
    count = np.bincount(np.maximum(buckets, -1) + 1, minlength=max([*asked, 0]) + 2)  # from -1 on
    return count[np.array(asked, np.int64) + 1]


@dataclass
class State:
    """What all threads of one machine share. The fields are arguments of `search`."""

    store: VectorStore
    queries: Vectors
    groups: tuple[int, ...]
    asked: tuple[int, ...]
    depth: int
    sides: tuple[Side, ...]
    memory: int
    folder: Path | None

    def __post_init__(self) -> None:
        concepts, buckets = len(self.groups), len(self.asked)
        # |fl(x·q) − x·q| ≤ D u Σ|x q| ≤ D u for unit vectors [Higham 2002, 3.5]; twice, since stored ones are rounded
        error = 2.0 * (self.queries.shape[1] + 4) * 2.0**-24
        with warnings.catch_warnings():  # of torch, once: its sparse matrices are in beta
            warnings.simplefilter("ignore")
            _dots(np.zeros((1, 1)), np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros((1, 1)), np.arange(2))
        # cells: (side × concepts + concept) × buckets + position of the bucket; scores of the bottom side are negated
        self.lists = BestLists(
            len(self.sides) * concepts * buckets, self.depth, error, self.memory, self.folder,
            score=lambda cells, rows: _score_again(self, cells, rows), names=self.store.names,
        )  # fmt: skip
        self.sizes = sizes(self.store.buckets, self.asked)  # (buckets,) rows to be read
        self.seen, self.read = np.zeros(buckets, np.int64), 0  # (buckets,) rows that were read, and all bytes
        self.lock = Lock()  # of these
        self.locks = [Lock() for _ in range(-(-concepts // _shape(self)[2]))]  # one for each chunk of concepts


def _shape(state: State) -> tuple[int, int, int]:
    """(rows that are read at once, rows of a window, concepts of a chunk); window × chunk is at most PRODUCTS."""
    concepts = max(1, len(state.groups))
    # Python's work for a window keeps other threads waiting; with long lists the vectors of a window are kept.
    most = WINDOW // 2 if concepts > MANY else 4 * WINDOW if _is_short(state) else WINDOW
    block = min(most, max(64, BLOCK_BYTES // (4 * max(1, state.queries.shape[1]))))
    rows = most // block * block
    return block, rows, min(concepts, PRODUCTS // rows)


def _is_short(state: State) -> bool:
    return state.lists.cells * state.depth * SHORT <= len(state.store)


def _windows(store: VectorStore, low: int, high: int, rows: int) -> list[Window]:
    """The rows low to high of the store in windows, shuffled."""
    windows = []
    for file, start in zip(store.files, store.starts.tolist(), strict=False):
        a, b = max(low, start) - start, min(high, start + file.rows) - start
        windows += [(file, start, first, min(first + rows, b)) for first in range(a, b, rows)]
    return [windows[i] for i in rng_for(0, "windows", low).permutation(len(windows)).tolist()]


def scan(job: tuple[State, int, int]) -> None:
    """Multiply the rows of a range by all queries, window by window, and list what may be among the best."""
    torch.set_num_threads(1)  # of this thread: the ranges are the parallelism
    state, low, high = job
    position = np.full(max([*state.asked, 0]) + 2, len(state.asked), np.int32)
    position[list(state.asked)] = np.arange(len(state.asked))
    _, rows, chunk = _shape(state)
    scanner = Scanner(state, torch.from_numpy(np.ascontiguousarray(state.queries)), rows)
    chunks = -(-len(state.groups) // chunk)
    turn = low * chunks // max(1, len(state.store))  # threads begin with different chunks, so that none waits
    for vectors, start, first, end in _windows(state.store, low, high, rows):
        bucket = state.store.buckets[start + first : start + end]
        places = position[np.where((bucket < 0) | (bucket >= len(position)), len(position) - 1, bucket)]
        order = np.argsort(places, kind="stable")
        edges = np.searchsorted(places[order], np.arange(len(state.asked) + 1))
        runs = [(b, a, z) for b, (a, z) in enumerate(pairwise(edges.tolist())) if z > a]
        if not runs:
            continue
        scanner.load(vectors, first, end, order[: edges[-1]], start + first)
        for i in range(chunks):
            c = (turn + i) % chunks
            scanner.compare(c, c * chunk, min((c + 1) * chunk, len(state.groups)), runs)
        with state.lock:
            for b, a, z in runs:
                state.seen[b] += z - a


class Scanner:
    """The buffers of one thread."""

    def __init__(self, state: State, queries: Any, rows: int) -> None:
        self.state, self.queries = state, queries
        self.doubles = state.queries.astype(np.float64)
        self.bounds = np.array([*state.groups, len(queries)], np.int64)
        self.block, width = _shape(state)[0], queries.shape[1]
        self.many = len(state.groups) > MANY
        # Where lists are short, a block of vectors that stays in the cache is faster, and few vectors are read again.
        self.keep = self.many or not _is_short(state)
        self.wide = torch.empty((rows if self.keep else self.block, width))
        raw = rows if self.many else self.block
        types = {file.dtype for file in state.store.files}
        self.raw = {name: torch.empty((raw, width), dtype=getattr(torch, name)) for name in types}
        self.sorted = torch.empty((raw if self.many else 0, width), dtype=torch.float16)
        self.double = torch.empty((rows if self.many else 0, width), dtype=torch.float64)
        self.widened = False  # whether `double` holds the window
        most = max(np.diff(self.bounds[:: _shape(state)[2]], append=len(queries)).tolist())
        self.product = torch.empty(most * rows) if self.many else torch.empty((len(queries), rows))
        self.rows = np.zeros(0, np.int64)  # of the columns of the product
        self.order = np.zeros(0, np.int64)  # place in `wide` of each column

    def load(self, vectors: VectorFile, first: int, end: int, order: Ints, start: int) -> None:
        """Read the rows first to end of a file; order: those that are asked, sorted by bucket."""
        n, raw, self.widened = end - first, self.raw[vectors.dtype], False
        item = raw.element_size() * raw.shape[1]
        self.rows, self.order = order + start, np.arange(len(order)) if self.many else order
        with vectors.path.open("rb", buffering=0) as file:
            step = n if self.many else self.block
            for low in range(0, n, step):
                size = min(step, n - low)
                wide = self.wide[low : low + size] if self.keep else self.wide[:size]
                part = wide if wide.dtype == raw.dtype and not self.many else raw[:size]
                _fill(file.fileno(), part.numpy().reshape(-1).view(np.uint8).data, vectors, (first + low) * item)
                if not self.many:
                    if part is not wide:
                        wide.copy_(part)
                    self.product[:, low : low + size].copy_(torch.mm(self.queries, wide.t()))
        if self.many:
            target = self.wide if vectors.dtype == "float32" else self.sorted
            torch.index_select(raw, 0, torch.from_numpy(order), out=target[: len(order)])
            if target is self.sorted:
                self.wide[: len(order)].copy_(target[: len(order)])
        with self.state.lock:
            self.state.read += n * item

    def products(self, low: int, high: int) -> Vectors:
        """(high - low, n) highest products of each concept's queries with the rows, in order of the buckets."""
        first, last = int(self.bounds[low]), int(self.bounds[high])
        if self.many:
            out = self.product[: (last - first) * len(self.rows)].view(last - first, len(self.rows))
            highest = torch.mm(self.queries[first:last], self.wide[: len(self.rows)].t(), out=out).numpy()
        else:
            highest = self.product.numpy()[first:last]
            plain = len(self.order) == self.order[-1] + 1 and bool((np.diff(self.order) == 1).all())
            highest = highest[:, : len(self.order)] if plain else np.take(highest, self.order, axis=1)
        if last - first > high - low:
            highest = np.maximum.reduceat(highest, self.bounds[low:high] - first, axis=0)
        return np.ascontiguousarray(highest)

    def compare(self, chunk: int, low: int, high: int, runs: Sequence[tuple[int, int, int]]) -> None:
        """Add the rows that may be among the best of the concepts low to high; runs: (bucket, first, end column)."""
        state, lists = self.state, self.state.lists
        products = self.products(low, high)
        n, concepts, buckets = products.shape[1], len(state.groups), len(state.asked)
        bucket_of = np.repeat([b for b, _, _ in runs], [z - a for _, a, z in runs])
        share = max((state.seen[b] + z - a) / state.sizes[b] for b, a, z in runs)
        picked = []
        for s, side in enumerate(state.sides):
            sign = np.float32(1 if side == "top" else -1)
            cells = (s * concepts + np.arange(low, high))[:, None] * buckets + np.arange(buckets)
            least, eager = lists.least[cells], lists.eager[cells]
            mask = np.empty(products.shape, np.bool_)
            for b, a, z in runs:
                part = products[:, a:z]
                if (least[:, b] == -np.inf).any():
                    self._first(sign * part, (z - a) / state.sizes[b], least[:, b], eager[:, b])
                floor = (sign * (least[:, b] - np.float32(lists.error)))[:, None]
                (np.greater_equal if sign > 0 else np.less_equal)(part, floor, out=mask[:, a:z])
            at = np.flatnonzero(mask)
            concept = at // n
            column = at - concept * n
            cell = concept * buckets + bucket_of[column]
            value = sign * products.reshape(-1)[at]
            lower = value - np.float32(lists.error)
            least_of = least.reshape(-1)[cell]
            exact = (value >= eager.reshape(-1)[cell]) | (lower <= least_of)
            picked.append((cells.reshape(-1)[cell], concept + low, column, lower, exact, least_of, sign))
        self._score(picked)
        with state.locks[chunk]:
            for cell, _, column, lower, exact, least_of, _ in picked:
                good = ~exact | (lower >= least_of)
                rows = self.rows[column[good]]
                lists.add(cell[good], rows, lower[good], exact[good], _rank_at(share, state.depth))

    def _first(self, signed: Vectors, share: float, least: Vectors, eager: Vectors) -> None:
        """Thresholds of lists that are not full yet, from these products alone; changes `least` and `eager`."""
        n, depth, error = signed.shape[1], self.state.depth, np.float32(self.state.lists.error)
        places = n - depth, n - _rank_at(share, depth)
        cut = np.partition(signed, sorted({p for p in places if p >= 0} or {0}), axis=1)
        for place, bound in zip(places, (least, eager), strict=True):
            if place >= 0:
                np.copyto(bound, np.fmax(bound, cut[:, place] - error), where=bound == -np.inf)

    def _score(self, picked: Sequence[tuple[Any, ...]]) -> None:
        """Score exactly what is marked so; changes its scores."""
        marks = [np.flatnonzero(exact) for _, _, _, _, exact, _, _ in picked]
        concept = np.concatenate([p[1][at] for p, at in zip(picked, marks, strict=True)])
        column = np.concatenate([p[2][at] for p, at in zip(picked, marks, strict=True)])
        if not len(concept):
            return
        if self.many:
            if not self.widened:
                self.double[: len(self.rows)].copy_(self.wide[: len(self.rows)])
                self.widened = True
            x = self.double.numpy()
        else:
            columns, column = np.unique(column, return_inverse=True)
            if self.keep:
                x = self.wide.numpy()[self.order[columns]].astype(np.float64)
            else:
                raw = self.state.store.take(self.rows[columns])
                x = raw.astype(np.float64)
                with self.state.lock:
                    self.state.read += raw.nbytes
        scores = _dots(x, column, concept, self.doubles, self.bounds)
        for (_, _, _, lower, _, _, sign), at, part in zip(
            picked, marks, np.split(scores, np.cumsum([len(at) for at in marks])[:-1]), strict=True
        ):
            lower[at] = sign * part


def _rank_at(share: float, depth: int) -> int:
    """The rank of a list whose score the last one of the list will probably have in the end, when a share of the bucket
    has been read: its expectation and two standard deviations."""
    expected = depth * min(1.0, share)
    return min(depth, int(expected + 2 * expected**0.5 + 2))


def _dots(
    x: npt.NDArray[np.float64], rows: Ints, concepts: Ints, queries: npt.NDArray[np.float64], bounds: Ints
) -> Vectors:
    """(n,) exact scores of pairs of a row of x and a concept: sums in float64, each in an order of its own width alone,
    so that they do not depend on which pairs are scored together."""
    key, inverse = np.unique(rows * (len(bounds) - 1) + concepts, return_inverse=True)  # sorted by row, none twice
    row, concept = np.divmod(key, len(bounds) - 1)
    sizes = np.diff(bounds)[concept]
    starts = np.cumsum(sizes) - sizes
    column = np.arange(sizes.sum()) + np.repeat(bounds[concept] - starts, sizes)
    edges = np.append(0, np.cumsum(np.bincount(np.repeat(row, sizes), minlength=len(x))))
    crow, col, zeros = (torch.from_numpy(a) for a in (edges, column, np.zeros(len(column))))
    pairs = torch.sparse_csr_tensor(crow, col, zeros, (len(x), len(queries)), check_invariants=False)
    dots = torch.sparse.sampled_addmm(pairs, torch.from_numpy(x), torch.from_numpy(queries).t(), beta=0.0)
    return np.maximum.reduceat(dots.values().numpy(), starts).astype(np.float32)[inverse]


def _score_again(state: State, cells: Ints, rows: Ints, block: int = 4096) -> Vectors:
    """(n,) signed exact scores of rows, whose vectors are read again, each once."""
    concepts, buckets = len(state.groups), len(state.asked)
    signs = np.array([1 if side == "top" else -1 for side in state.sides], np.float32)[cells // (concepts * buckets)]
    concept, out = cells // buckets % concepts, np.empty(len(cells), np.float32)
    order = np.argsort(rows, kind="stable")
    unique, first = np.unique(rows[order], return_index=True)
    queries, bounds = state.queries.astype(np.float64), np.array([*state.groups, len(state.queries)], np.int64)
    for low in range(0, len(unique), block):
        part = unique[low : low + block]
        raw = state.store.take(part)
        at = order[first[low] : first[low + block] if low + block < len(first) else None]
        out[at] = _dots(raw.astype(np.float64), np.searchsorted(part, rows[at]), concept[at], queries, bounds)
        with state.lock:
            state.read += raw.nbytes
    return signs * out


def _fill(descriptor: int, view: memoryview, vectors: VectorFile, offset: int) -> None:
    """Read bytes of the vectors from `offset` on, until `view` is full."""
    done = 0
    while done < len(view):
        count = read_into(descriptor, view[done:], vectors.offset + offset + done)
        if count == 0:
            raise BadInput(f"{vectors.path} ends before its {vectors.rows:,} vectors do.", "", "Embed the shard again.")
        done += count
