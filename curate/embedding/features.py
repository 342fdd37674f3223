"""Features of a release's images by any encoder, as input of learners."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.executor import Executor
from driftline.curate.core.executor.torch_threads import one_thread
from driftline.curate.core.outside.images import read_rgb
from driftline.curate.core.run_log import RunLog
from driftline.curate.embedding.reuse import encoder_name
from driftline.curate.encoders import EncoderSpec
from driftline.curate.store.database import Place, open_store
from driftline.curate.store.vectors import keep_rows, looks, read_vectors

CHUNK = 256  # images per task
LEAST = 16  # images of a batch


_Chunk = tuple[tuple[bytes, ...], EncoderSpec, int]  # images, encoder, images per batch


def features(
    images: Sequence[bytes], spec: EncoderSpec, run_log: RunLog, batch: int = 64, executor: Executor | None = None
) -> npt.NDArray[np.float16]:
    """(N, D) float16, unit length, in the order of `images`; the same bytes for any number of workers."""
    chunks = [(tuple(images[i : i + CHUNK]), spec, batch) for i in range(0, len(images), CHUNK)]
    executor = executor if executor and spec.load().device == "cpu" else Executor()
    if len(chunks) > 1:
        executor = executor.for_items(len(images), lambda n: _features((tuple(images[:n]), spec, batch)))
    vectors: dict[int, npt.NDArray[np.float16]] = {}
    with run_log.progress("features", len(images), "images") as tick:
        for i, result in executor.run_tasks(_features, chunks):
            vectors[i] = result
            tick(len(result))
    return np.concatenate([vectors[i] for i in range(len(chunks))])


def features_with_store(
    images: Sequence[bytes], digests: Sequence[str], spec: EncoderSpec, run_log: RunLog, batch: int,
    executor: Executor | None, place: Place | None, kind: str,
) -> npt.NDArray[np.float16]:  # fmt: skip
    """As `features`, with the vectors that a store has. digests: SHA-256 of the photos that the images were made of, as
    the store knows them. kind: how they were made."""
    if place is None or not place.reads:
        return features(images, spec, run_log, batch, executor)
    with open_store(place.folder) as store:
        stored = looks(store, f"{encoder_name(spec.load(), batch)} {kind}", digests)
        old = [i for i, digest in enumerate(digests) if digest in stored and stored[digest].fault is None]
        vectors = read_vectors(store, [stored[digests[i]] for i in old])
    new = sorted(set(range(len(images))) - set(old))
    rows = dict(zip(old, vectors, strict=True))
    if new:
        rows |= dict(zip(new, features([images[i] for i in new], spec, run_log, batch, executor), strict=True))
    return np.stack([rows[i] for i in range(len(images))])


def keep_features(
    place: Place | None, digests: Sequence[str], spec: EncoderSpec, batch: int, kind: str, npy: Path
) -> None:
    """Take a complete file of such vectors, in the order of `digests`."""
    if place is not None:
        with open_store(place.folder) as store:
            rows = {digest: row for row, digest in enumerate(digests)}
            keep_rows(store, f"{encoder_name(spec.load(), batch)} {kind}", npy, rows)


def filled(tensor: Any) -> Any:
    """A batch of at least LEAST images: the first one is repeated. For small batches CPU libraries use other code with
    other last bits (on an AMD EPYC below 16); from LEAST on, an image's vector does not depend on its batch."""
    import torch

    missing = LEAST - len(tensor)
    return tensor if missing <= 0 else torch.cat([tensor, tensor[:1].expand(missing, *tensor.shape[1:])])


def _features(chunk: _Chunk) -> npt.NDArray[np.float16]:
    import torch

    images, spec, batch = chunk
    encoder = spec.load()
    out = []
    with one_thread():
        for low in range(0, len(images), batch):
            tensors = [encoder.prepare(read_rgb(data, "An image")) for data in images[low : low + batch]]
            out.append(encoder.images(filled(torch.stack(tensors)))[: len(tensors)].astype(np.float16))
    return np.concatenate(out)
