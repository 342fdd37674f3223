"""Embedding: images from shards, decoding included, against the bare model on tensors in memory, same batch and device.

    python benchmarks/embedding.py [--model RN50] [--images N] [--device cpu|cuda] [--decoders N]

On CPU one worker and the bare model have one core each way; on CUDA decoding runs in processes beside the device.
Pictures are noisy JPEGs of 500 × 375 (73 kB); weights are random, which costs the same. One JSON line.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curate.core.atomic_io import sha256_bytes, write_parquet
from curate.core.run_log import RunLog
from curate.embedding.embed import embed
from curate.encoders import EncoderSpec
from curate.images.shards import index_path, shard_path, write_tar
from curate.pretrain.small_clip import save


def shards_of(folder: Path, images: int, each: int = 256) -> pa.Table:
    """Shards of noisy JPEGs; returns the rows that embed reads."""
    from PIL import Image

    rng = np.random.default_rng(0)
    rows: list[dict[str, Any]] = []
    for shard, low in enumerate(range(0, images, each)):
        members, mine = [], []
        for i in range(low, min(low + each, images)):
            smooth = Image.fromarray(rng.integers(0, 256, (24, 32, 3), np.uint8)).resize((500, 375))
            noisy = np.asarray(smooth, np.int16) + rng.integers(-20, 20, (375, 500, 3))
            buffer = io.BytesIO()
            Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=88)
            data = buffer.getvalue()
            members.append((f"{i}.jpg", data))
            mine.append(
                {"id": str(i), "shard": shard, "member": f"{i}.jpg", "sha256": sha256_bytes(data), "bytes": len(data)}
            )
        write_tar(shard_path(folder, shard), members)
        write_parquet(index_path(folder, shard), pa.Table.from_pylist(mine))
        rows += [row | {"bucket": 0} for row in mine]
    return pa.Table.from_pylist(rows)


def model_of(name: str, folder: Path) -> None:
    """An open_clip model of this architecture with random weights."""
    import open_clip

    config = open_clip.get_model_config(name)
    save(open_clip.create_model(name, pretrained=None), config, folder)


def bare(spec: EncoderSpec, images: int, batch: int) -> float:
    """Images a second of the model on tensors in memory."""
    import torch

    encoder = spec.load()
    size = encoder.images(torch.zeros((1, 3, 224, 224), dtype=torch.uint8)).shape[0]
    x = torch.randint(0, 256, (batch, 3, 224, 224), dtype=torch.uint8)
    encoder.images(x)
    begun = time.perf_counter()
    for _ in range(max(1, images // batch)):
        encoder.images(x)
    return max(1, images // batch) * batch * size / (time.perf_counter() - begun)


def main() -> None:
    """Measure both, alternating, twice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="RN50")
    parser.add_argument("--images", type=int, default=192)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--decoders", type=int, default=None)
    options = parser.parse_args()
    import torch

    if options.device == "cpu":
        torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model_of(options.model, folder / "model")
        members = shards_of(folder / "shards", options.images)
        spec = EncoderSpec(model=str(folder / "model"), device=options.device, precision=options.precision)
        decoders = options.decoders
        if decoders is None and options.device != "cpu":
            decoders = len(os.sched_getaffinity(0))
        limits, ours = [], []
        for run in range(3):
            limits.append(bare(spec, options.images, options.batch))
            begun = time.perf_counter()
            embed(
                folder / "shards", members, spec, folder / f"out{run}", RunLog(quiet=True), options.batch,
                decoders=decoders,
            )  # fmt: skip
            ours.append(options.images / (time.perf_counter() - begun))
        share = float(np.median(ours)) / float(np.median(limits))
        print(
            json.dumps(
                {
                    "model": options.model,
                    "device": options.device,
                    "images": options.images,
                    "mean_bytes": int(sum(members["bytes"].to_pylist()) / len(members)),
                    "bare_images_per_second": round(float(np.median(limits)), 2),
                    "images_per_second": round(float(np.median(ours)), 2),
                    "share": round(share, 3),
                }
            )
        )


if __name__ == "__main__":
    main()
