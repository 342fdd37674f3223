"""A stream of images or texts → the same stream with an encoder's vectors in their place."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from curate.core.errors import BadArray
from stream_builder.lazy_images import Encoded
from stream_builder.stream import Array, Step, Stream, pick

CHUNK = 256  # samples encoded at once
Tick = Callable[[int], None]


class Encoder(Protocol):
    """What is asked of an encoder; those of `curate.encoders` have it."""

    width: int
    prepare: Callable[[Any], Any]

    def images(self, batch: Any) -> Any:
        """Prepared images (N, ...) → (N, width)."""
        ...

    def texts(self, texts: Sequence[str]) -> Any:
        """N texts → (N, width)."""
        ...


def is_text(stream: Stream) -> bool:
    """Whether the samples are texts."""
    return stream.x_shape == ()


def is_image(stream: Stream) -> bool:
    """Whether the samples are images (H, W, 3)."""
    return len(stream.x_shape) == 3 and stream.x_shape[-1] == 3


def encoded(stream: Stream, encoder: Encoder, told: str, tick: Tick = lambda n: None) -> Stream:
    """Vectors (N, D) float16 of all samples, the unlabelled ones among them. told: the encoder, for the record.

    Images that lie encoded in files are prepared from their own pixels, not from those that the stream would show.
    Raises BadArray for a stream that has neither texts nor images.
    """
    if not is_text(stream) and not is_image(stream):
        raise BadArray(f"{stream.name!r} has samples of shape {stream.x_shape}.", "Expected texts or images.")

    def bare(x: Any) -> Array | None:
        if x is None:
            return None
        parts = [np.zeros((0, encoder.width), np.float16)]
        for low in range(0, len(x), CHUNK):
            chunk = pick(x, slice(low, low + CHUNK))
            parts.append(np.asarray(_vectors(chunk, encoder), np.float16))
            tick(len(chunk))
        return np.concatenate(parts)

    def vectors(step: Step) -> Step:
        splits = {name: replace(split, x=bare(split.x)) for name, split in step.splits.items()}
        return replace(step, splits=splits, unlabelled=bare(step.unlabelled))

    oracle = None if stream.oracle is None else vectors(stream.oracle)
    steps = [vectors(step) for step in stream.steps]
    facts = {**stream.facts, "encoder": told}
    return replace(stream, steps=steps, prior=bare(stream.prior), facts=facts, oracle=oracle, sha256="")


def samples_of(stream: Stream) -> int:
    """How many samples `encoded` will encode."""
    steps = [*stream.steps, *([] if stream.oracle is None else [stream.oracle])]
    labelled = sum(len(split) for step in steps for split in step.splits.values())
    return labelled + sum(len(x) for x in [stream.prior, *(s.unlabelled for s in steps)] if x is not None)


def _vectors(chunk: Any, encoder: Encoder) -> Any:
    if not isinstance(chunk, Encoded) and chunk.dtype.kind == "U":
        return encoder.texts([str(text) for text in chunk])
    import torch

    return encoder.images(torch.stack([encoder.prepare(image) for image in _images(chunk)]))


def _images(chunk: Any) -> Iterator[Any]:
    from PIL import Image

    if isinstance(chunk, Encoded):
        for data in chunk.raw():
            with Image.open(io.BytesIO(data)) as image:
                yield image.convert("RGB")
    else:
        yield from (Image.fromarray(np.asarray(pixels)) for pixels in chunk)
