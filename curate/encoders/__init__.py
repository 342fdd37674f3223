"""Encoders: images and texts → unit vectors in one space.

A new encoder is one file here and one line in `ENCODERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from curate.core.errors import BadConfig
from curate.core.registry import Registry

Vectors = npt.NDArray[np.float32]


class Encoder(Protocol):
    """fingerprint: changes when model or weights do. width: D. device: where it computes, "cpu" or "cuda…".
    precision: of its arithmetic."""

    fingerprint: str
    width: int
    device: str
    precision: str

    prepare: Callable[[Any], Any]
    """A PIL image → the model's input tensor: uint8 (3, H, W) after resize and crop, or float32, normalised; can be
    sent to other processes without the model"""

    def images(self, batch: Any) -> Vectors:
        """Prepared inputs (N, ...) → (N, D) float32, unit length."""
        ...

    def texts(self, texts: Sequence[str]) -> Vectors:
        """N texts → (N, D) float32, unit length."""
        ...

    def cut(self, text: str) -> str:
        """The end of a text that does not fit into the model's context; "" where all of it does."""
        ...


@dataclass(frozen=True)
class EncoderSpec:
    """Which encoder: plain data, so that workers can load it. See the encoder's own class for the fields."""

    model: str
    weights: str | None = None
    device: str = "auto"
    kind: str = "clip"
    precision: str = "auto"
    compile: bool = False

    def load(self) -> Encoder:
        """The encoder; a process loads it once."""
        return _load(self)


@lru_cache(maxsize=1)
def _load(spec: EncoderSpec) -> Encoder:
    made: Encoder = ENCODERS[spec.kind](spec.model, spec.weights, spec.device, spec.precision, spec.compile)
    return made


def spec_of(text: str, device: str = "auto") -> EncoderSpec:
    """`sentence:all-MiniLM-L6-v2`, `clip:ViT-B-32:openai`, `ngrams:2048`, `table:FOLDER` → which encoder. Raises
    UnknownName, BadConfig.

    >>> spec_of("clip:ViT-B-32:openai")
    EncoderSpec(model='ViT-B-32', weights='openai', device='auto', kind='clip', precision='auto', compile=False)
    """
    kind, _, rest = text.partition(":")
    ENCODERS[kind]
    hub = "hf-hub:" if rest.startswith("hf-hub:") else ""  # open_clip's own colon
    model, _, weights = rest.removeprefix(hub).partition(":")
    model = hub + model
    if model == hub:
        raise BadConfig(f"The encoder is {text!r}.", "Expected KIND:MODEL or KIND:MODEL:WEIGHTS, as in ngrams:2048.")
    return EncoderSpec(model, weights or None, device, kind)


def describe(encoder: Encoder, kind: str, model: str, weights: str | None) -> dict[str, Any]:
    """What a folder of vectors says of its maker."""
    return {
        "kind": kind,
        "model": model,
        "weights": weights,
        "precision": encoder.precision,
        "fingerprint": encoder.fingerprint,
        "width": encoder.width,
    }


def unit(vectors: Vectors) -> Vectors:
    """Rows (N, D) of length 1; a row of zeros stays."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(norms, 1e-12), np.float32)


ENCODERS = Registry(
    "encoder",
    {
        "clip": "curate.encoders.clip:Clip",
        "backbone": "curate.encoders.backbone:Backbone",
        "table": "curate.encoders.precomputed:TableOfVectors",
        "sentence": "curate.encoders.sentence:Sentence",
        "ngrams": "curate.encoders.ngrams:Ngrams",
    },
    group="encoders",
)
