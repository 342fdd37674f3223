"""Similarity by exact inner products over the stored vectors."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadConfig
from driftline.curate.core.vectors import unit
from driftline.pipelines.browse.collection import Collection, Recent

if TYPE_CHECKING:
    from driftline.curate.encoders import Encoder

BLOCK = 1024  # vectors that are widened at a time: they stay in the cache of the processor
REMEMBERED = 8  # rankings
Floats = npt.NDArray[np.float32]


class Vectors:
    """The vectors of a collection."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        self.files = collection.source.vectors
        self._scores: Recent[Floats] = Recent(REMEMBERED)
        self._encoders: Recent[Encoder] = Recent(1)

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
            blocks = [block @ query for block in self._blocks()]
            photos, rows = self._places
            scores = np.full(self.collection.size, -np.inf, np.float32)
            scores[photos] = np.concatenate(blocks)[rows]
            return scores

        return self._scores.get(key, compute)

    def _blocks(self) -> Iterator[Floats]:
        """All vectors as float32, BLOCK at a time."""
        for file in self.files:
            stored = file.map() if file.rows else np.zeros((0, file.width), np.float32)
            for low in range(0, file.rows, BLOCK):
                yield np.asarray(stored[low : low + BLOCK], np.float32)
