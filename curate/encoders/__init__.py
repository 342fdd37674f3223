"""Encoders: images and texts → unit vectors in one space.

A new encoder is one file here and one line in `ENCODERS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from curate.ground.catalogue import Catalogue

Vectors = npt.NDArray[np.float32]


class Encoder(Protocol):
    """fingerprint: changes when model or weights do. width: D."""

    fingerprint: str
    width: int

    def prepare(self, image: Any) -> Any:
        """A PIL image → the model's input tensor (its own preprocessing)."""
        ...

    def images(self, batch: Any) -> Vectors:
        """Prepared inputs (N, ...) → (N, D) float32, unit length."""
        ...

    def texts(self, texts: Sequence[str]) -> Vectors:
        """N texts → (N, D) float32, unit length."""
        ...


ENCODERS = Catalogue("encoder", {"clip": "curate.encoders.clip:Clip"})
