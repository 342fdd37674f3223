"""The best k rows of many cells (a side, a concept, a bucket) while vectors are read once: memory of fixed size.

A row enters with a lower bound of its score (a float32 product less its rounding error) or with its exact score. What
cannot be among the best k any more is dropped; of rows with equal exact scores those with the first ids stay.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import Shortage

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]
ENTRY = 4 + 8 + 1  # bytes of a score, a row and whether the score is exact
ROOM = 32  # places of a list beyond k, at least
BATCH = 1 << 18  # entries that are shrunk at once
PAIRS = 1 << 22  # rows that are scored again at once


def places(depth: int) -> int:
    """Places of a list: k, and half as many for rows that wait until the list is shrunk."""
    return depth + max(ROOM, depth // 2)


@dataclass
class BestLists:
    """The lists of `cells` cells; see the head of the file."""

    cells: int
    depth: int
    """k"""
    error: float
    """largest difference of a float32 product and the exact score; a score that is not exact is the product less it"""
    memory: int
    """bytes; larger lists lie in a temporary file, which the system removes"""
    folder: Path | None
    """where that file lies (None: the system's)"""
    score: Callable[[Ints, Ints], Floats]
    """(cells (n,), rows (n,)) → exact scores (n,), from vectors that are read again"""
    names: Callable[[Ints], list[str]]
    """rows → ids"""
    scores: Floats = field(init=False)
    """(cells, places); -inf: an empty place"""
    rows: Ints = field(init=False)
    """(cells, places)"""
    exact: Bools = field(init=False)
    """(cells, places)"""
    counts: Ints = field(init=False)
    """(cells,) places in use"""
    least: Floats = field(init=False)
    """(cells,) no row below it can be among the best k"""
    eager: Floats = field(init=False)
    """(cells,) a row from it on will probably stay, so that it is scored exactly at once"""

    def __post_init__(self) -> None:
        shape = self.cells, places(self.depth)
        total = shape[0] * shape[1] * ENTRY
        if total > self.memory:
            free = shutil.disk_usage(self.folder or tempfile.gettempdir()).free
            if free < total:
                raise Shortage(
                    f"The lists of the search need {total / 1e6:,.0f} MB, and {free / 1e6:,.0f} MB of disk are free.",
                    f"Expected room for {places(self.depth):,} rows for each side, concept and bucket.",
                    "Lower retrieve.depth, or make room.",
                )
            with tempfile.TemporaryFile(dir=self.folder) as file:  # the map keeps it until the last list is dropped
                file.truncate(total)
                raw: npt.NDArray[np.uint8] = np.memmap(file, np.uint8, "r+", shape=(total,))
        else:
            raw = np.zeros(total, np.uint8)
        cuts = np.cumsum([0, *(np.prod(shape) * size for size in (8, 4, 1))]).tolist()
        parts = [np.asarray(raw[a:b]) for a, b in pairwise(cuts)]
        self.rows = parts[0].view(np.int64).reshape(shape)
        self.scores = parts[1].view(np.float32).reshape(shape)
        self.exact = parts[2].view(np.bool_).reshape(shape)
        self.scores[:] = -np.inf
        self.counts = np.zeros(self.cells, np.int64)
        self.least, self.eager = (np.full(self.cells, -np.inf, np.float32) for _ in range(2))

    def add(self, cells: Ints, rows: Ints, scores: Floats, exact: Bools, eager_rank: int) -> None:
        """Add rows (n,) of `cells` (n,), ascending; eager_rank: which best score of a list becomes its `eager`."""
        while len(cells):
            first = np.flatnonzero(np.concatenate([[True], cells[1:] != cells[:-1]]))
            counts = np.diff(first, append=len(cells))
            place = np.arange(len(cells)) + np.repeat(self.counts[cells[first]] - first, counts)
            width = self.scores.shape[1]
            fits = np.flatnonzero(place < width)
            at = cells[fits] * width + place[fits]
            for ours, new in ((self.scores, scores), (self.rows, rows), (self.exact, exact)):
                ours.reshape(-1)[at] = new[fits]
            listed = cells[first]
            self.counts[listed] = np.minimum(self.counts[listed] + counts, width)
            full = listed[self.counts[listed] == width]
            self.shrink(full, eager_rank)
            if len(fits) == len(cells):
                return
            left = np.flatnonzero(place >= width)
            left = left[scores[left] + 2 * self.error * ~exact[left] >= self.least[cells[left]]]
            cells, rows, scores, exact = cells[left], rows[left], scores[left], exact[left]

    def shrink(self, cells: Ints, eager_rank: int = 1) -> None:
        """Drop rows of `cells` that cannot be among the best k, and raise `least` and `eager`."""
        for part in _parts(cells, self.scores.shape[1]):
            crowded = self._shrink(part, eager_rank)
            if len(crowded):  # many rows within the rounding error of the k-th: their vectors decide
                self.settle(crowded)
                self._shrink(crowded, eager_rank)

    def _shrink(self, cells: Ints, eager_rank: int) -> Ints:
        """Returns the cells that stay nearly full."""
        scores, exact, width = self.scores[cells], self.exact[cells], self.scores.shape[1]
        kth, eager = width - self.depth, width - max(1, min(self.depth, eager_rank))
        cut = np.partition(scores, sorted({kth, eager}), axis=1)
        least = cut[:, kth]
        low = least - np.float32(2 * self.error)
        keep = (scores >= low[:, None]) & (exact <= (scores >= least[:, None])) & (scores > -np.inf)
        sizes = keep.sum(1)
        tied = exact & (scores == least[:, None]) & keep
        surplus = tied.sum(1) - (self.depth - (scores > least[:, None]).sum(1))
        for i in np.flatnonzero(surplus > 0).tolist():
            equal = np.flatnonzero(tied[i])
            names = np.array(self.names(self.rows[cells[i], equal]), np.str_)
            keep[i, equal[np.argsort(names)[len(equal) - surplus[i] :]]] = False
            sizes[i] -= surplus[i]
        source, place = np.nonzero(keep)
        target = np.arange(len(source)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        old, new = cells[source] * width + place, cells[source] * width + target
        rows = self.rows.reshape(-1)[old]
        self.scores[cells] = -np.inf
        self.scores.reshape(-1)[new] = scores[source, place]
        self.rows.reshape(-1)[new] = rows
        self.exact.reshape(-1)[new] = exact[source, place]
        self.counts[cells], self.least[cells] = sizes, least
        self.eager[cells] = cut[:, eager]
        return cells[sizes > self.depth + (width - self.depth) // 2]

    def settle(self, cells: Ints) -> None:
        """Score exactly what is not yet exact in the lists of `cells`."""
        width, waiting, count = self.scores.shape[1], [], 0
        for part in _parts(cells, width):
            i, place = np.nonzero(~self.exact[part] & (np.arange(width) < self.counts[part][:, None]))
            waiting.append(part[i] * width + place)
            count += len(i)
            if count > PAIRS or part[-1] == cells[-1]:
                at = np.concatenate(waiting)
                self.scores.reshape(-1)[at] = self.score(at // width, self.rows.reshape(-1)[at])
                self.exact.reshape(-1)[at] = True
                waiting, count = [], 0

    def finish(self) -> None:
        """Score and sort every list: best first, equal scores by id; `counts` are at most k then."""
        every = np.arange(self.cells)
        self.shrink(every)
        self.settle(every)
        for cells in _parts(every, self.scores.shape[1]):
            scores = self.scores[cells]
            order = np.argsort(-scores, axis=1, kind="stable")
            scores = np.take_along_axis(scores, order, 1)
            rows = np.take_along_axis(self.rows[cells], order, 1)
            equal = (scores[:, 1:] == scores[:, :-1]) & (scores[:, 1:] > -np.inf)
            for i in np.flatnonzero(equal[:, : self.depth].any(1)).tolist():
                tied = np.flatnonzero(np.append(equal[i], False) | np.append(False, equal[i]))
                names = np.array(self.names(rows[i, tied]), np.str_)
                rows[i, tied] = rows[i, tied][np.lexsort((names, -scores[i, tied]))]
            self.scores[cells], self.rows[cells] = scores, rows
        self.counts = np.minimum(self.counts, self.depth)


def _parts(cells: Ints, width: int) -> Iterator[Ints]:
    """Cells by cells, as many as have BATCH entries."""
    step = max(1, BATCH // width)
    return (cells[low : low + step] for low in range(0, len(cells), step))
