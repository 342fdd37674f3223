"""Features of a release's images by any encoder, as input of learners; and what a store knows of images: it is used
before anything is computed, and it takes what was computed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.executor import Executor, one_thread
from driftline.curate.core.late import torch
from driftline.curate.core.own_code import codes_of
from driftline.curate.core.run_log import RunLog
from driftline.curate.encoders import Encoder, EncoderSpec
from driftline.curate.foreign.images import PREPARATION, read_rgb
from driftline.curate.store.database import Place, open_store
from driftline.curate.store.photos import Look, looks, read_vectors

CHUNK = 256  # images per task
LEAST = 16  # images of a batch


Vectors16 = npt.NDArray[np.float16]
_Chunk = tuple[tuple[bytes, ...], EncoderSpec, int]  # images, encoder, images per batch


def encoder_name(encoder: Encoder, batch: int) -> str:
    """Name of all that decides the bits of a vector, also how pictures are prepared. Raises BadPlugin for an encoder
    whose code cannot be read."""
    own = "".join(f" {code}" for code in codes_of([type(encoder)]).values())
    device = encoder.device.partition(":")[0]
    return f"{encoder.fingerprint} {device} {encoder.precision} {batch} {PREPARATION}{own}"


def features(
    images: Sequence[bytes], spec: EncoderSpec, run_log: RunLog, batch: int = 64, executor: Executor | None = None
) -> npt.NDArray[np.float16]:
    """(N, D) float16, unit length, in the order of `images`; the same bytes for any number of workers."""
    chunks = [(tuple(images[i : i + CHUNK]), spec, batch) for i in range(0, len(images), CHUNK)]
    executor = executor if executor and spec.load().device == "cpu" else Executor()
    if len(chunks) > 1:
        executor = executor.for_items(len(images))
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
        known = looks(store, f"{encoder_name(spec.load(), batch)} {kind}", digests)
    stored = {digest: look for digest, look in known.items() if look.fault is None}
    new = [image for image, digest in zip(images, digests, strict=True) if digest not in stored]
    computed = features(new, spec, run_log, batch, executor) if new else np.zeros((0, spec.load().width), np.float16)
    return with_stored(place, stored, digests, computed, [None] * len(new), [None] * len(new))[0]


def filled(tensor: Any) -> Any:
    """A batch of at least LEAST images: the first one is repeated. For small batches CPU libraries use other code with
    other last bits (on an AMD EPYC below 16); from LEAST on, an image's vector does not depend on its batch."""
    missing = LEAST - len(tensor)
    return tensor if missing <= 0 else torch.cat([tensor, tensor[:1].expand(missing, *tensor.shape[1:])])


def _features(chunk: _Chunk) -> npt.NDArray[np.float16]:
    images, spec, batch = chunk
    encoder = spec.load()
    out = []
    with one_thread():
        for low in range(0, len(images), batch):
            tensors = [encoder.prepare(read_rgb(data, "An image")) for data in images[low : low + batch]]
            out.append(encoder.images(filled(torch.stack(tensors)))[: len(tensors)].astype(np.float16))
    return np.concatenate(out)


def with_stored(
    place: Place,
    stored: Mapping[str, Look],
    digests: Sequence[str],
    computed: Vectors16,
    faults: Sequence[str | None],
    hashes: Sequence[int | None],
) -> tuple[Vectors16, list[str | None], list[int | None]]:
    """(vectors, faults, hashes) of all images, in order. computed (M, D), faults, hashes: of those that were not
    stored."""
    new = iter(zip(faults, hashes, strict=True))
    rows = [(stored[d].fault, stored[d].phash) if d in stored else next(new) for d in digests]
    good = [d for d, (fault, _) in zip(digests, rows, strict=True) if fault is None]
    is_stored = np.array([d in stored for d in good], bool)
    vectors = np.empty((len(good), computed.shape[1]), np.float16)
    vectors[~is_stored] = computed
    if is_stored.any():
        with open_store(place.folder) as store:
            vectors[is_stored] = read_vectors(store, [stored[d] for d in good if d in stored])
    return vectors, [fault for fault, _ in rows], [hash_ for _, hash_ in rows]
