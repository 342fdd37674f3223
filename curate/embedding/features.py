"""Features of a release's images by any encoder, as input of learners."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from curate.core.executor import Executor
from curate.core.run_log import RunLog
from curate.core.torch_threads import one_thread
from curate.encoders import EncoderSpec

CHUNK = 256  # images per task


@dataclass(frozen=True)
class _Chunk:
    images: tuple[bytes, ...]
    spec: EncoderSpec
    batch: int


def features(
    images: Sequence[bytes], spec: EncoderSpec, run_log: RunLog, batch: int = 64, executor: Executor | None = None
) -> npt.NDArray[np.float16]:
    """(N, D) float16, unit length, in the order of `images`; the same bytes for any number of workers."""
    chunks = [_Chunk(tuple(images[i : i + CHUNK]), spec, batch) for i in range(0, len(images), CHUNK)]
    on_cpu = spec.load().device == "cpu"
    vectors: dict[int, npt.NDArray[np.float16]] = {}
    with run_log.progress("features", len(images), "images") as tick:
        for i, result in (executor if executor and on_cpu else Executor()).run_tasks(_features, chunks):
            vectors[i] = result
            tick(len(result))
    return np.concatenate([vectors[i] for i in range(len(chunks))])


def _features(chunk: _Chunk) -> npt.NDArray[np.float16]:
    import torch
    from PIL import Image

    encoder = chunk.spec.load()
    out = []
    with one_thread():
        for low in range(0, len(chunk.images), chunk.batch):
            tensors = []
            for data in chunk.images[low : low + chunk.batch]:
                with Image.open(io.BytesIO(data)) as image:
                    tensors.append(encoder.prepare(image.convert("RGB")))
            out.append(encoder.images(torch.stack(tensors)).astype(np.float16))
    return np.concatenate(out)
