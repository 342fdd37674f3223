"""Labelled texts → a stream of one step, as texts or as vectors of an encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from curate.ground.errors import BadArray
from stream_builder.bases import Base
from stream_builder.stream import Split, Step, Stream

Encode = Callable[[Sequence[str]], Any]
CHUNK = 1024  # texts encoded at once


def from_texts(base: Base) -> Stream:
    """One step with train and test splits, in the files' order."""
    splits = {}
    for side in ("train", "test"):
        of = getattr(base, side)
        splits[side] = Split(of.x, of.y, np.array([f"{side}-{i}" for i in of.index.tolist()]))
    return Stream(base.name, [Step(0, "all", splits)], base.classes, facts={"from": "texts", "base": base.name})


def encoded(stream: Stream, encode: Encode, told: str, tick: Callable[[int], None] = lambda n: None) -> Stream:
    """The stream with vectors (N, D) float16 in place of its texts. told: the encoder, for the record.

    Raises BadArray for a stream that has no texts.
    """
    if not is_text(stream):
        raise BadArray(f"{stream.name!r} has samples of shape {stream.x_shape}.", "Expected texts.")

    def vectors(split: Split) -> Split:
        parts = []
        for low in range(0, len(split), CHUNK):
            texts = [str(text) for text in split.x[low : low + CHUNK]]
            parts.append(np.asarray(encode(texts), np.float16))
            tick(len(texts))
        return replace(split, x=np.concatenate(parts))

    steps = [Step(s.index, s.name, {name: vectors(split) for name, split in s.splits.items()}) for s in stream.steps]
    return Stream(stream.name, steps, stream.classes, facts={**stream.facts, "encoder": told})


def is_text(stream: Stream) -> bool:
    """Whether the samples are texts."""
    return stream.x_shape == ()
