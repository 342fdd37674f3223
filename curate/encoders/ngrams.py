"""Texts as hashed counts of their letters: no weights, no download; the floor that a learned encoder has to beat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from curate.core.errors import BadConfig
from curate.core.hashed_ngrams import hashed_ngrams
from curate.encoders import Vectors


class Ngrams:
    """Hashed counts of letters; texts only, no weights.

    model: the width, as in "2048". See `curate.core.hashed_ngrams`.
    """

    device, precision = "cpu", "float32"

    def __init__(
        self,
        model: str = "2048",
        weights: str | None = None,
        device: str = "cpu",
        precision: str = "auto",
        compiled: bool = False,
    ) -> None:
        if not str(model).isdigit() or int(model) < 2:
            raise BadConfig(f"The width of ngrams is {model!r}.", "Expected a number from 2, as in ngrams:2048.")
        self.width = int(model)
        self.fingerprint = f"ngrams-{self.width}"

    def prepare(self, image: Any) -> Any:
        """Raises BadConfig: it knows no images."""
        raise BadConfig("Letters cannot be counted in images.", "Expected texts.", "Choose encoder clip for images.")

    def images(self, batch: Any) -> Vectors:
        """Raises BadConfig."""
        return np.asarray(self.prepare(batch))

    def texts(self, texts: Sequence[str]) -> Vectors:
        """N texts → (N, D) float32, unit length."""
        return hashed_ngrams(texts, self.width)

    def cut(self, text: str) -> str:
        """Nothing: all of a text counts."""
        return ""
