"""Similarity by exact inner products over the stored vectors, and the map: their first two principal components."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from driftline.curate.core.atomic_io import write_array
from driftline.curate.core.errors import BadConfig
from driftline.curate.core.vectors import unit
from driftline.pipelines.browse.collection import Collection
from driftline.pipelines.browse.recent import Recent

if TYPE_CHECKING:
    from driftline.curate.encoders import Encoder

BLOCK = 1024  # vectors that are widened at a time: they stay in the cache of the processor
SAMPLE = 50_000  # vectors from which the axes of the map are computed
OUTER = 0.005  # share of the vectors beyond each edge of the map, which are drawn on it
REMEMBERED = 8  # rankings
Floats = npt.NDArray[np.float32]


class Vectors:
    """The vectors of a collection."""

    def __init__(self, collection: Collection, cache: Path | None) -> None:
        """cache: folder for the map; None: memory only."""
        self.collection, self._cache = collection, cache
        self.files = collection.source.vectors
        self._scores: Recent[Floats] = Recent(REMEMBERED)
        self._encoders: Recent[Encoder] = Recent(1)
        self._lock = Lock()

    def __bool__(self) -> bool:
        """Whether there are vectors."""
        return any(file.rows for file in self.files)

    @cached_property
    def _places(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        return self.collection.vector_rows()

    def to_text(self, text: str) -> Floats:
        """(N,) cosine of each photo to a prompt, -inf without a vector. Raises BadConfig without a model."""
        load = self.collection.source.encoder
        if load is None:
            raise BadConfig("There is no model that reads prompts.", "Expected a run whose embed stage is done.")
        query = np.asarray(self._encoders.get("", load).texts([text])[0], np.float32)
        return self._to(f"text {text}", unit(query))

    def to_photo(self, number: int) -> Floats:
        """(N,) similarity of each photo to one of them. Raises BadConfig if it has no vector."""
        photos, rows = self._places
        at = np.searchsorted(photos, number)
        if at >= len(photos) or photos[at] != number:
            raise BadConfig(f"The photo {number} has no vector.", "Expected a photo that was embedded.")
        return self._to(f"photo {number}", self._row(int(rows[at])))

    def _row(self, row: int) -> Floats:
        for file in self.files:
            if row < file.rows:
                return unit(np.asarray(file.map()[row], np.float32))
            row -= file.rows
        raise BadConfig(f"There is no vector {row}.")

    def _to(self, key: str, query: Floats) -> Floats:
        def compute() -> Floats:
            blocks = [self._block_scores(block, query) for block in self._blocks()]
            photos, rows = self._places
            scores = np.full(self.collection.size, -np.inf, np.float32)
            scores[photos] = np.concatenate(blocks)[rows]
            return scores

        return self._scores.get(key, compute)

    def _block_scores(self, block: Floats, query: Floats) -> Floats:
        scores = block @ query
        if not self.collection.source.unit:
            scores = scores / np.maximum(np.linalg.norm(block, axis=1), 1e-12)
        return scores

    def _blocks(self) -> Iterator[Floats]:
        """All vectors as float32, BLOCK at a time."""
        for file in self.files:
            stored = file.map() if file.rows else np.zeros((0, file.width), np.float32)
            for low in range(0, file.rows, BLOCK):
                yield np.asarray(stored[low : low + BLOCK], np.float32)

    @cached_property
    def map(self) -> Floats:
        """(N, 2) place of each photo on the map, from 0 to 1; NaN without a vector."""
        with self._lock:
            flat = self._stored_map()
        photos, rows = self._places
        places = np.full((self.collection.size, 2), np.nan, np.float32)
        places[photos] = flat[rows]
        return places

    def _stored_map(self) -> Floats:
        count = sum(file.rows for file in self.files)
        path = None if self._cache is None else self._cache / "map.npy"
        if path is not None and path.is_file():
            try:
                stored = np.load(path, allow_pickle=False)
                if stored.shape == (count, 2):
                    return np.asarray(stored, np.float32)
            except (OSError, ValueError):  # damaged: it is made again
                pass
        flat = self._principal(count)
        if path is not None:
            try:
                write_array(path, flat)
            except OSError:
                self._cache = None
        return flat

    def _principal(self, count: int) -> Floats:
        """The two directions of largest variance, scaled so that all but OUTER of the photos are inside."""
        step = max(1, count // SAMPLE)
        sample = np.concatenate([block[::step] for block in self._blocks()]).astype(np.float64)
        mean = sample.mean(0)
        _, axes = np.linalg.eigh((sample - mean).T @ (sample - mean))
        axes = axes[:, :-3:-1]
        # The sign of an axis is arbitrary: its largest part is positive, so that a map looks the same every time.
        axes = axes * np.sign(axes[np.abs(axes).argmax(0), range(axes.shape[1])])
        flat = np.concatenate([(block - mean) @ axes for block in self._blocks()])
        if flat.shape[1] < 2:
            flat = np.concatenate([flat, np.zeros((len(flat), 2 - flat.shape[1]))], 1)
        low, high = np.quantile(flat, [OUTER, 1 - OUTER], axis=0)
        return np.clip((flat - low) / np.maximum(high - low, 1e-9), 0, 1).astype(np.float32)

    def in_box(self, box: tuple[float, float, float, float]) -> npt.NDArray[np.bool_]:
        """(N,) whether a photo is in a box (left, low, right, high) of the map."""
        left, low, right, high = box
        x, y = self.map.T
        return np.asarray((x >= left) & (x <= right) & (y >= low) & (y <= high))
