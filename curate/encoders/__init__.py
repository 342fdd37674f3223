"""Encoders: images and texts → unit vectors in one space.

A new encoder is one file here and one line in `ENCODERS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
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


@dataclass(frozen=True)
class EncoderSpec:
    """Which encoder: plain data, so that workers can load it. See the encoder's own class for the fields."""

    model: str
    weights: str | None = None
    device: str = "auto"
    kind: str = "clip"

    def load(self) -> Encoder:
        """The encoder; a process loads it once."""
        return _load(self)


@lru_cache(maxsize=1)
def _load(spec: EncoderSpec) -> Encoder:
    made: Encoder = ENCODERS[spec.kind](spec.model, spec.weights, spec.device)
    return made


ENCODERS = Catalogue("encoder", {"clip": "curate.encoders.clip:Clip"})
