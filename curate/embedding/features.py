"""Features of a release's images by any encoder, as input of learners."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from curate.core.executor import Executor
from curate.core.outside.images import opened
from curate.core.run_log import RunLog
from curate.core.torch_threads import one_thread
from curate.encoders import EncoderSpec

CHUNK = 256  # images per task


_Chunk = tuple[tuple[bytes, ...], EncoderSpec, int]  # images, encoder, images per batch


def features(
    images: Sequence[bytes], spec: EncoderSpec, run_log: RunLog, batch: int = 64, executor: Executor | None = None
) -> npt.NDArray[np.float16]:
    """(N, D) float16, unit length, in the order of `images`; the same bytes for any number of workers."""
    chunks = [(tuple(images[i : i + CHUNK]), spec, batch) for i in range(0, len(images), CHUNK)]
    on_cpu = spec.load().device == "cpu"
    vectors: dict[int, npt.NDArray[np.float16]] = {}
    with run_log.progress("features", len(images), "images") as tick:
        for i, result in (executor if executor and on_cpu else Executor()).run_tasks(_features, chunks):
            vectors[i] = result
            tick(len(result))
    return np.concatenate([vectors[i] for i in range(len(chunks))])


def _features(chunk: _Chunk) -> npt.NDArray[np.float16]:
    import torch

    images, spec, batch = chunk
    encoder = spec.load()
    out = []
    with one_thread():
        for low in range(0, len(images), batch):
            tensors = []
            for data in images[low : low + batch]:
                with opened(data, "An image") as image:
                    rgb = image.convert("RGB")
                tensors.append(encoder.prepare(rgb))
            out.append(encoder.images(torch.stack(tensors)).astype(np.float16))
    return np.concatenate(out)
