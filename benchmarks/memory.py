"""Peak memory with ten times the data: of every stage of a run, what a photo more costs; of learners, how many copies.

    python benchmarks/memory.py [--photos N]
    python benchmarks/memory.py --learners finetune,joint   (or all that clear-iid takes)

Allocations of Python, NumPy and Arrow, counted and not read off the process: the same on a busy machine. Pictures of
7 kB in shards of 32; the encoder is the mean colour. A stage that kept the pictures would need 7,000 bytes a photo.
The source is a folder, whose list of files every stage reads to see whether it has changed. One JSON line.

A learner: three streams in files, in processes of their own: `STEPS` steps of `ROWS` rows, ten times the steps, ten
times the rows a step. Of the most memory above that of the process before, files aside, two numbers follow: copies of
a step, and copies of the whole stream. What does not grow with either (weights, buffers, Fisher information) is in
neither.
"""

import argparse
import gc
import json
import multiprocessing
import sys
import tempfile
import threading
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pyarrow as pa
from PIL import Image

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))  # the encoder

from driftline.curate.core.executor import Executor
from driftline.curate.core.run_log import RunLog
from driftline.eval.learners import LEARNERS
from driftline.eval.results import Results
from driftline.eval.run import Settings, evaluate
from driftline.pipelines.actions.listing import entries_of
from driftline.pipelines.config.loader import load
from driftline.pipelines.run import runner
from driftline.pipelines.stages import STAGES
from driftline.pipelines.stages.base import Context
from driftline.stream_builder.builders.arrays import from_arrays
from driftline.stream_builder.stream import Stream

STEPS, ROWS, WIDTH, CLASSES = 4, 500, 512, 10  # a row: 2,048 bytes
LOOKS = 3  # at each size: one can miss the peak, and none invents one

CONFIG = """
collection: {{source: folder, path: photos, label: parent, dates: [path]}}
filter: {{upload_after_capture: false}}
fetch: {{shard_size: 32}}
buckets: {{kind: calendar, unlabelled: []}}
embed: {{encoder: "support.toy_encoder:MeanColour", model: a, batch: 16}}
retrieve:
  per_class: {retrieved}
  depth: {photos}
  background_share: 0
  short: fewer
  concepts: [{{name: car, prompts: [a car]}}]
validation: {{method: catalogue}}
release: {{per_class: {released}, splits: 1, short: fewer, own: true}}
"""


@contextmanager
def watched(size: Callable[[], int]) -> Iterator[list[int]]:
    """Sizes every two milliseconds."""
    done, seen = threading.Event(), [size()]

    def watch() -> None:
        while not done.wait(0.002):
            seen.append(size())

    watching = threading.Thread(target=watch)
    watching.start()
    yield seen
    done.set()
    watching.join()


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
        for name in STAGES:
            gc.collect()
            tracemalloc.start()
            with watched(pa.total_allocated_bytes) as seen:  # of Arrow, which tracemalloc does not see
                runner.run(context, until=name)
            found[name] = tracemalloc.get_traced_memory()[1] + max(seen) - seen[0]
            tracemalloc.stop()
    return found


def resident() -> int:
    """Bytes of this process in memory that are no file's."""
    (line,) = [ln for ln in Path("/proc/self/status").read_text().splitlines() if ln.startswith("RssAnon")]
    return int(line.split()[1]) * 1024


def most(work: Callable[[], Results], said: Connection) -> None:
    """Send the most memory during `work` above that before it, looked at every two milliseconds, and who was
    skipped."""
    with watched(resident) as seen:
        skipped = work()["skipped"]
    said.send((max(seen) - seen[0], skipped))


def stream_of(folder: Path, steps: int, rows: int) -> Path:
    """A stream of random features in a folder; its test splits are small."""
    rng, n = np.random.default_rng(0), steps * (rows + 20)
    y, step = np.arange(n) % CLASSES, np.repeat(np.arange(steps), rows + 20)
    x = rng.normal(size=(n, WIDTH)).astype(np.float32)
    x[:, 0] += y  # there is something to learn
    split = np.tile(np.repeat(["train", "test"], [rows, 20]), steps)
    from_arrays({"x": x, "y": y, "step": step, "split": split}).save(folder)
    return folder


def copies(learner: str, folders: Sequence[Path]) -> dict[str, float] | str:
    """Copies of a step and of the stream that a learner holds at its peak; or why it does not run on features."""
    found: list[float] = []
    settings: Settings = {"epochs": 1} if hasattr(LEARNERS.resolve(learner), "epochs") else {}
    fork = multiprocessing.get_context("fork")
    for folder in folders:
        sizes = []
        for _ in range(LOOKS):
            get, put = fork.Pipe(duplex=False)
            work = partial(evaluate, Stream.load(folder), "clear-iid", [learner], settings=settings)
            process = fork.Process(target=most, args=(work, put))
            process.start()
            size, skipped = get.recv()
            process.join()
            if skipped:
                return str(skipped[0]["because"])
            sizes.append(size)
        found.append(max(sizes) / (WIDTH * 4 * ROWS))
    small, long, wide = found
    stream = (long - small) / (9 * STEPS)
    return {"step": round((wide - small) / 9 - STEPS * stream, 1), "stream": round(stream, 2)}


def main() -> None:
    """Measure both sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=int, default=100)
    parser.add_argument("--learners", help="names with commas, or all")
    photos, learners = vars(parser.parse_args()).values()
    if learners:
        import torch

        torch.set_num_threads(1)
        names = [row["name"] for row in entries_of("learners")] if learners == "all" else learners.split(",")
        with tempfile.TemporaryDirectory() as place:
            sizes = {"small": (STEPS, ROWS), "long": (10 * STEPS, ROWS), "wide": (STEPS, 10 * ROWS)}
            folders = [stream_of(Path(place, name), *size) for name, size in sizes.items()]
            for name in names:
                print(json.dumps({"learner": name, "copies": copies(name, folders)}), flush=True)
        return
    peaks(photos)  # modules are loaded
    small, large = peaks(photos), peaks(10 * photos)
    more = {stage: round((large[stage] - small[stage]) / (9 * photos)) for stage in small}
    fixed = {stage: round(max(0, small[stage] - more[stage] * photos) / 1e6, 1) for stage in small}
    print(json.dumps({"photos": photos, "bytes_a_photo": more, "fixed_mb": fixed, "most_bytes": max(more.values())}))


if __name__ == "__main__":
    main()
