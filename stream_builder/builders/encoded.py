"""A stream of images or texts → the same stream with an encoder's vectors instead."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from driftline.curate.core.errors import BadArray
from driftline.curate.foreign.images import as_rgb, read_rgb
from driftline.stream_builder.class_texts import TextEncoder
from driftline.stream_builder.lazy_images import LazyImages
from driftline.stream_builder.stream import Array, Step, Stream, pick

BATCH = 256  # samples encoded at once
Tick = Callable[[int], None]


class Encoder(TextEncoder, Protocol):
    """What this module needs of an encoder; those of `driftline.curate.encoders` have it."""

    width: int
    """dimensions of a vector"""
    prepare: Callable[[Any], Any]
    """PIL image → input tensor"""

    def images(self, batch: Any) -> Any:
        """Prepared images (N, ...) → (N, width)."""
        ...


def is_image(stream: Stream) -> bool:
    """Whether the samples are images (H, W, 3)."""
    return len(stream.x_shape) == 3 and stream.x_shape[-1] == 3


def encode(stream: Stream, encoder: Encoder, name: str, tick: Tick = lambda n: None) -> Stream:
    """The stream with vectors (N, D) float16 of all samples, including unlabelled ones.

    name: of the encoder, recorded in the stream. tick: called with the number of samples of each batch. Lazy images are
    prepared from their original pixels, not from the resized ones. Raises BadArray for a stream of features.
    """
    if stream.x_shape != () and not is_image(stream):
        raise BadArray(f"{stream.name!r} has samples of shape {stream.x_shape}.", "Expected texts or images.")

    def vectors(x: Any) -> Array | None:
        if x is None:
            return None
        parts = [np.zeros((0, encoder.width), np.float16)]
        for low in range(0, len(x), BATCH):
            batch = pick(x, slice(low, low + BATCH))
            parts.append(np.asarray(_vectors(batch, encoder), np.float16))
            tick(len(batch))
        return np.concatenate(parts)

    def encode_step(step: Step) -> Step:
        splits = {name: replace(split, x=vectors(split.x)) for name, split in step.splits.items()}
        return replace(step, splits=splits, unlabelled=vectors(step.unlabelled))

    oracle = None if stream.oracle is None else encode_step(stream.oracle)
    steps = [encode_step(step) for step in stream.steps]
    facts = {key: value for key, value in stream.facts.items() if key != "buckets"} | {"encoder": name}
    whole = replace(stream, steps=steps, unlabelled=vectors(stream.unlabelled), oracle=oracle)
    return replace(whole, facts=facts, sha256="", class_texts=None)


def count_samples(stream: Stream) -> int:
    """The number of samples that `encode` encodes."""
    steps = [*stream.steps, *([] if stream.oracle is None else [stream.oracle])]
    labelled = sum(len(split) for step in steps for split in step.splits.values())
    return labelled + sum(len(x) for x in [stream.unlabelled, *(s.unlabelled for s in steps)] if x is not None)


def _vectors(batch: Any, encoder: Encoder) -> Any:
    if not isinstance(batch, LazyImages) and batch.dtype.kind == "U":
        return encoder.texts([str(text) for text in batch])
    import torch

    return encoder.images(torch.stack([encoder.prepare(image) for image in _images(batch)]))


def _images(batch: Any) -> Iterator[Any]:
    from PIL import Image

    if isinstance(batch, LazyImages):
        return (read_rgb(data, "An image of the stream") for data in batch.raw())
    return (as_rgb(Image.fromarray(np.asarray(pixels))) for pixels in batch)
