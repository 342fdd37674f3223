"""Embedding: images from shards, decoding included, against the bare model on tensors in memory, same batch and device.

    python benchmarks/embedding.py [--model RN50] [--images N] [--device cpu|cuda] [--decoders N]

On CPU the model has one core, and a thread decodes beside it; on CUDA decoding runs in processes beside the device.
Pictures are noisy JPEGs of 500 × 375 (73 kB), or photos of the demo with its model (`--model demo`). Else
weights are random, which costs the same. One JSON line.

share: images a second, of the bare model's. share_by_cpu (CPU only): the same for two free cores, by the CPU seconds of
the busier of the two threads: other programs do not disturb it.
"""

import argparse
import io
import json
import os
import shutil
import tempfile
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from driftline.curate.core.atomic_io import sha256_bytes, write_parquet
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.seeding import rng_for
from driftline.curate.embedding.embed import embed
from driftline.curate.encoders import EncoderSpec
from driftline.curate.images.shards import index_path, shard_path, write_tar
from driftline.curate.pretrain.small_clip import save


def shards_of(folder: Path, images: int, demo: bool, each: int = 256) -> pa.Table:
    """Shards of noisy JPEGs, or of photos of the demo; returns the rows that embed reads."""
    from PIL import Image

    from driftline.pipelines.demo.draw import jpeg, photo

    def noisy(i: int) -> bytes:
        smooth = Image.fromarray(rng.integers(0, 256, (24, 32, 3), np.uint8)).resize((500, 375))
        pixels = np.asarray(smooth, np.int16) + rng.integers(-20, 20, (375, 500, 3))
        buffer = io.BytesIO()
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=88)
        return buffer.getvalue()

    def drawn(i: int) -> bytes:
        return jpeg(photo(["car"], 0.2, rng_for(0, i)))

    rng = np.random.default_rng(0)
    picture = drawn if demo else noisy
    rows: list[dict[str, Any]] = []
    for shard, low in enumerate(range(0, images, each)):
        members, mine = [], []
        for i in range(low, min(low + each, images)):
            data = picture(i)
            members.append((f"{i}.jpg", data))
            mine.append(
                {"id": str(i), "shard": shard, "member": f"{i}.jpg", "sha256": sha256_bytes(data), "bytes": len(data)}
            )
        write_tar(shard_path(folder, shard), members)
        write_parquet(index_path(folder, shard), pa.Table.from_pylist(mine))
        rows += [row | {"bucket": 0} for row in mine]
    return pa.Table.from_pylist(rows)


def model_of(name: str, folder: Path) -> None:
    """An open_clip model of this architecture with random weights, or the demo's own."""
    import open_clip

    if name == "demo":
        shutil.copytree(str(files("driftline.pipelines") / "demo" / "model"), folder)
        return

    config = open_clip.get_model_config(name)
    save(open_clip.create_model(name, pretrained=None), config, folder)


def bare(spec: EncoderSpec, images: int, batch: int) -> tuple[float, float]:
    """Seconds and CPU seconds an image of the model on tensors in memory."""
    import torch
    from PIL import Image

    encoder = spec.load()
    one = encoder.prepare(Image.new("RGB", (256, 256)))
    x = torch.randint(0, 256, (batch, *one.shape), dtype=torch.uint8)
    encoder.images(x)
    begun, cpu = time.perf_counter(), time.process_time()
    for _ in range(max(1, images // batch)):
        encoder.images(x)
    done = max(1, images // batch) * batch
    return (time.perf_counter() - begun) / done, (time.process_time() - cpu) / done


def measured(
    model: str, images: int, batch: int, device: str, precision: str = "auto", decoders: int | None = None
) -> dict[str, Any]:
    """Both, alternating, three times; medians."""
    import torch

    if device == "cpu":
        torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model_of(model, folder / "model")
        members = shards_of(folder / "shards", images, model == "demo")
        spec = EncoderSpec(model=str(folder / "model"), device=device, precision=precision)
        if decoders is None and device != "cpu":
            decoders = len(os.sched_getaffinity(0))
        limits, ours, shares = [], [], []
        for run in range(3):
            limit, limit_cpu = bare(spec, images, batch)
            begun, cpu, mine = time.perf_counter(), time.process_time(), time.thread_time()
            embed(folder / "shards", members, spec, folder / f"out{run}", RunLog(quiet=True), batch, decoders=decoders)
            ours.append(images / (time.perf_counter() - begun))
            limits.append(1 / limit)
            mine = time.thread_time() - mine
            shares.append(limit_cpu * images / max(mine, time.process_time() - cpu - mine))
    found = {
        "model": model,
        "device": device,
        "images": images,
        "mean_bytes": int(sum(members["bytes"].to_pylist()) / len(members)),
        "bare_images_per_second": round(float(np.median(limits)), 2),
        "images_per_second": round(float(np.median(ours)), 2),
        "share": round(float(np.median(ours)) / float(np.median(limits)), 3),
    }
    if device == "cpu":
        found["share_by_cpu"] = round(float(np.median(shares)), 3)
    return found


def main() -> None:
    """Print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="RN50")
    parser.add_argument("--images", type=int, default=192)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--decoders", type=int, default=None)
    given = parser.parse_args()
    print(json.dumps(measured(given.model, given.images, given.batch, given.device, given.precision, given.decoders)))


if __name__ == "__main__":
    main()
