"""Peak memory of every stage of a run, with ten times the photos: what a photo more costs, and what stays the same.

    python benchmarks/memory.py [--photos N]

Allocations of Python, NumPy and Arrow, counted and not read off the process: the same on a busy machine. Pictures of
7 kB in shards of 32; the encoder is the mean colour. A stage that kept the pictures would need 7,000 bytes a photo.
The source is a folder, whose list of files every stage reads to see whether it has changed. One JSON line.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
from PIL import Image

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))  # the encoder

from curate.core.executor import Executor
from curate.core.run_log import RunLog
from pipelines import runner
from pipelines.config.loader import load
from pipelines.stage import Context
from pipelines.stages import STAGES

CONFIG = """
collection: {{source: folder, path: photos, label: parent, dates: [path]}}
filter: {{upload_after_capture: false}}
fetch: {{shard_size: 32}}
buckets: {{kind: calendar, unlabelled: []}}
embed: {{encoder: "support.toy_encoder:MeanColour", model: a, batch: 16}}
retrieve:
  per_class: {retrieved}
  depth: {photos}
  background: false
  short: fewer
  concepts: [{{name: car, prompts: [a car]}}]
validation: {{method: catalogue}}
release: {{per_class: {released}, splits: 1, short: fewer}}
"""


def peaks(photos: int) -> dict[str, int]:
    """Stage → bytes at its peak."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        root, rng = Path(folder), np.random.default_rng(0)
        (root / "photos" / "car").mkdir(parents=True)
        for i in range(photos):
            noise = Image.fromarray(rng.integers(0, 256, (72, 72, 3), np.uint8))
            noise.save(root / "photos" / "car" / f"201{i % 3}-05-01-{i}.jpg", quality=95)
        text = CONFIG.format(photos=photos, retrieved=photos // 6, released=photos // 9)
        (root / "driftline.yaml").write_text(text, encoding="utf-8")
        context = Context(root, load(root / "driftline.yaml"), RunLog(quiet=True), Executor())
        before = pa.default_memory_pool()
        for name in STAGES:
            gc.collect()
            pool = pa.proxy_memory_pool(pa.system_memory_pool())
            pa.set_memory_pool(pool)
            tracemalloc.start()
            runner.run(context, until=name)
            found[name] = tracemalloc.get_traced_memory()[1] + pool.max_memory()
            tracemalloc.stop()
            pa.set_memory_pool(before)
    return found


def main() -> None:
    """Measure both sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=int, default=100)
    photos = parser.parse_args().photos
    peaks(photos)  # modules are loaded
    small, large = peaks(photos), peaks(10 * photos)
    more = {stage: round((large[stage] - small[stage]) / (9 * photos)) for stage in small}
    fixed = {stage: round(max(0, small[stage] - more[stage] * photos) / 1e6, 1) for stage in small}
    print(json.dumps({"photos": photos, "bytes_a_photo": more, "fixed_mb": fixed, "most_bytes": max(more.values())}))


if __name__ == "__main__":
    main()
