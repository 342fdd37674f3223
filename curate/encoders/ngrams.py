"""Texts as hashed character n-gram counts: no weights, no download; the baseline for learned encoders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from driftline.curate.core.errors import BadConfig
from driftline.curate.core.outside.names import is_count
from driftline.curate.core.vectors import hashed_ngrams
from driftline.curate.encoders import Encoder, Vectors


class Ngrams(Encoder):
    """Hashed character n-gram counts; texts only, no weights.

    model: the width, as in "2048". See `driftline.curate.core.vectors`.
    """

    def __init__(self, model: str = "2048", *_: Any) -> None:
        if not is_count(str(model)) or int(model) < 2:
            raise BadConfig(f"The width of ngrams is {model!r}.", "Expected a number from 2, as in ngrams:2048.")
        self.width = int(model)
        self.fingerprint = f"ngrams-{self.width}"

    def texts(self, texts: Sequence[str]) -> Vectors:
        """N texts → (N, D) float32, unit length."""
        return hashed_ngrams(texts, self.width)
