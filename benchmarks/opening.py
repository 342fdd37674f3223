"""Pictures and their dates: opening against Pillow alone, embedding against plain opening, dates, plan of a folder.

    python benchmarks/opening.py [--photos N] [--files N] [--rounds N]

Photos are noisy upright JPEGs of 500 × 375 with EXIF; each part runs on one core, alternating with what it is compared
with; medians of the rounds. One JSON line a part.

opening: seconds of `read_rgb` by those of Pillow's open and convert. embedding: images a second by those with Pillow's
open and convert in its place (the demo's model). dates: photos a CPU second from EXIF, of files. plan: seconds of
`driftline plan` for a folder of N files, without those of a walk that looks at each file.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from embedding import model_of, shards_of
from PIL import Image

from driftline.curate.core.outside.images import read_rgb
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.times.dates import exif
from driftline.curate.embedding import embed as embedding
from driftline.curate.encoders import EncoderSpec


def photo(number: int) -> bytes:
    """A noisy JPEG with the tags of a camera."""
    rng = np.random.default_rng(number)
    smooth = np.asarray(Image.fromarray(rng.integers(0, 256, (24, 32, 3), np.uint8)).resize((500, 375)), np.int16)
    tags, buffer = Image.Exif(), io.BytesIO()
    tags[0x010F], tags[0x0110], tags[0x0112] = "Maker", "Camera", 1
    tags.get_ifd(0x8769).update({0x9003: "2015:07:08 12:00:00", 0x9011: "+02:00", 0x927C: bytes(400)})
    pixels = np.clip(smooth + rng.integers(-20, 20, smooth.shape), 0, 255).astype(np.uint8)
    Image.fromarray(pixels).save(buffer, "JPEG", quality=88, exif=tags)
    return buffer.getvalue()


def plainly(data: bytes | Path, what: object = "") -> Image.Image:
    """Pillow alone."""
    assert isinstance(data, bytes)
    with Image.open(io.BytesIO(data)) as image:
        return image.convert("RGB")


def compared(ours: Callable[[], object], other: Callable[[], object], rounds: int) -> dict[str, float]:
    """Medians of the seconds of both and of their quotient, by the clock and by the processor, which other programs do
    not disturb."""
    taken = []
    for _ in range(rounds):
        marks = [(time.perf_counter(), time.process_time())]
        for job in (ours, other):
            job()
            marks.append((time.perf_counter(), time.process_time()))
        taken.append(np.diff(np.array(marks), axis=0))
    seconds = np.array(taken)  # (rounds, ours and other, clock and processor)
    clock, cpu = np.median(seconds[:, 0] / seconds[:, 1], axis=0)
    mine, others = np.median(seconds[:, :, 0], axis=0)
    return {"seconds": round(mine, 4), "other": round(others, 4), "ratio": round(clock, 4), "by_cpu": round(cpu, 4)}


def opening(photos: int, rounds: int) -> dict[str, Any]:
    """`read_rgb` against `plainly`."""
    files = [photo(i) for i in range(photos)]
    found = compared(lambda: [read_rgb(data, "") for data in files], lambda: [plainly(data) for data in files], rounds)
    return {"part": "opening", "photos": photos, "bytes": len(files[0]), **found}


def embedded(photos: int, rounds: int) -> dict[str, Any]:
    """The stage's work with both ways of opening."""
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        folder, runs = Path(scratch), iter(range(10**6))
        model_of("demo", folder / "model")
        members = shards_of(folder / "shards", photos, demo=False)
        spec = EncoderSpec(model=str(folder / "model"), device="cpu")

        def run(way: Callable[..., Image.Image]) -> None:
            embedding.read_rgb = way
            embedding.embed(folder / "shards", members, spec, folder / f"out{next(runs)}", RunLog(quiet=True), 32)

        run(read_rgb)
        found = compared(lambda: run(plainly), lambda: run(read_rgb), rounds)
    return {"part": "embedding", "photos": photos, "images_per_second": round(photos / found["other"], 1), **found}


def dated(photos: int, rounds: int) -> dict[str, Any]:
    """Photos a second of the processor whose date is read from their file."""
    with tempfile.TemporaryDirectory() as scratch:
        paths = [Path(scratch) / f"{i}.jpg" for i in range(photos)]
        for i, path in enumerate(paths):
            path.write_bytes(photo(i % 16))
        taken = []
        for _ in range(rounds):
            begun = time.process_time()
            assert all(exif(path).date is not None for path in paths)
            taken.append(time.process_time() - begun)
    return {"part": "dates", "photos": photos, "per_second": round(photos / float(np.median(taken)))}


def planned(files: int) -> dict[str, Any]:
    """Seconds of `plan`, and of a walk."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "photos"
        for i in range(files):
            path = root / f"{i // 1000:03d}" / f"{i:06d}.jpg"
            if i % 1000 == 0:
                path.parent.mkdir(parents=True)
                path.write_bytes(photo(i // 1000))
            else:
                os.link(path.with_name(f"{i - i % 1000:06d}.jpg"), path)
        run = [sys.executable, "-m", "driftline.pipelines.cli"]
        setting = f"collection.path={root}"
        subprocess.run([*run, "init", f"{scratch}/run", "--set", setting], check=True, capture_output=True)
        begun = time.perf_counter()
        seen = sum(path.is_file() for path in root.rglob("*"))
        walk = time.perf_counter() - begun
        begun, cpu = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*run, "plan", f"{scratch}/run", "--until", "bucket"], check=True, capture_output=True)
        took, now = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_took = now.ru_utime + now.ru_stime - cpu.ru_utime - cpu.ru_stime
    assert seen == files
    return {"part": "plan", "files": files, "walk_seconds": round(walk, 2), "seconds": round(took, 2),
            "beyond_walk_seconds": round(took - walk, 2), "cpu_seconds": round(cpu_took, 2)}  # fmt: skip


def main() -> None:
    """Print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=int, default=256)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    parts: list[Callable[[], dict[str, Any]]] = [
        lambda: opening(given.photos, given.rounds),
        lambda: embedded(given.photos, given.rounds),
        lambda: dated(4 * given.photos, given.rounds),
        lambda: planned(given.files),
    ]
    for part in parts:
        print(json.dumps(part()), flush=True)


if __name__ == "__main__":
    main()
