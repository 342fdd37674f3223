"""Reading and publishing data that people have: CLEAR-10's size, a dataset of the Hub, an upload of a million files.

    python benchmarks/importing.py [--share 1] [--only clear,features,hub,plan]

clear: `from_clear` and saving its stream, against reading the bytes of the same files once, both from a cold page cache
(`posix_fadvise`). features: published vectors of 2,048 numbers. hub: `from_hub` on Parquet shards of images, against
`datasets` streaming the same shards row by row without decoding an image (by itself, and writing what we write: dates,
labels, and the images in one file a shard), and against pyarrow doing the same; all of them warm, CPU seconds, the best
of four interleaved runs. plan: the plan of an upload.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from driftline.curate.core.seeding import rng_for
from driftline.curate.publishing import plan_of
from driftline.stream_builder.importers.clear import from_clear
from driftline.stream_builder.importers.clear_layouts import CLEAR10
from driftline.stream_builder.importers.hub import from_hub

IMAGES, BYTES, WIDTH, BUCKETS = 33_000, 25_000, 2048, 10
ROWS, SHARD = 20_000, 2_500  # of the dataset of the Hub
FILES = 1_000_000


@contextmanager
def folder() -> Iterator[Path]:
    """A temporary folder, removed at the end."""
    path = Path(tempfile.mkdtemp(prefix="importing-"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the clock and of the processor."""
    clock, cpu = time.monotonic(), time.process_time()
    work()
    return round(time.monotonic() - clock, 3), round(time.process_time() - cpu, 3)


def forget(root: Path) -> None:
    """Drop all files below a folder from the page cache."""
    os.sync()
    for path in root.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


def clear10(root: Path, images: int, vectors: bool) -> Path:
    """The new layout of `images` photos, with images of 25 kB or with features."""
    import torch

    each = images // (BUCKETS * len(CLEAR10))
    rng = rng_for(0, "importing")
    for part, count in (("train", each - each // 3), ("test", each // 3)):
        listed: dict[str, dict[str, str]] = {}
        tensors: dict[str, dict[str, str]] = {}
        for b in range(1, BUCKETS + 1):
            for c, name in enumerate(CLEAR10):
                ids = [f"{b:02d}{c:02d}{i:06d}{part}" for i in range(count)]
                records = {
                    id_: {"ID": id_, "USER_ID": id_, "DATE_UPLOADED": str(10**9 + 10**7 * b + i), "EXT": "jpg",
                          "IMG_DIR": "", "IMG_PATH": f"labeled_images/{b}/{name}/{id_}.jpg"}
                    for i, id_ in enumerate(ids)
                }  # fmt: skip
                place = f"labeled_metadata/{b}/{name}.json"
                written(root / part / place, json.dumps(records).encode())
                listed.setdefault(str(b), {})[name] = place
                if vectors:
                    place = f"features/moco_b0/{b}/{name}.pth"
                    (root / part / place).parent.mkdir(parents=True, exist_ok=True)
                    values = torch.from_numpy(rng.normal(0, 1, (count, WIDTH)).astype(np.float32))
                    torch.save({id_: values[i].clone() for i, id_ in enumerate(ids)}, root / part / place)
                    tensors.setdefault(str(b), {})[name] = place
                else:
                    for record in records.values():
                        written(root / part / record["IMG_PATH"], b"\xff\xd8" + rng.bytes(BYTES))
        written(root / part / "labeled_metadata.json", json.dumps(listed).encode())
        written(root / part / "class_names.txt", "\n".join(CLEAR10).encode())
        if vectors:
            written(root / part / "features" / "moco_b0" / "features.json", json.dumps(tensors).encode())
    return root


def written(path: Path, data: bytes) -> None:
    """Write a file and its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def clear(share: float) -> dict[str, float]:
    """Images: reading once, and the stream."""
    with folder() as root:
        data = clear10(root / "clear10", int(IMAGES * share), vectors=False)
        forget(data)
        reading = timed(lambda: [path.read_bytes() for path in data.rglob("*.jpg")] and None)
        forget(data)
        ours = timed(lambda: from_clear(data).save(root / "stream"))
    return {"read_s": reading[0], "read_cpu_s": reading[1], "clear_s": ours[0], "clear_cpu_s": ours[1],
            "over_read": round(ours[0] / reading[0], 2)}  # fmt: skip


def features(share: float) -> dict[str, float]:
    """Published features."""
    with folder() as root:
        data = clear10(root / "clear10", int(IMAGES * share), vectors=True)
        os.sync()  # what was written costs the reader time until it is on the disk
        ours = timed(lambda: from_clear(data, "moco_b0"))
    return {"seconds": ours[0], "cpu_s": ours[1]}


def hub(share: float) -> dict[str, float]:
    """CPU seconds of ours, with its dates and labels, and of the peers."""
    import datasets

    rng, rows = rng_for(0, "hub"), int(ROWS * share)
    with folder() as root:
        (root / "data").mkdir()
        for low in range(0, rows, SHARD):
            n = min(SHARD, rows - low)
            table = pa.table({
                "image": [{"bytes": b"\x89PNG" + rng.bytes(BYTES), "path": None} for _ in range(n)],
                "label": rng.integers(0, 10, n),
                "taken": [datetime(2010 + i % 5, 1, 1, tzinfo=UTC) for i in range(n)],
            })  # fmt: skip
            pq.write_table(table, root / "data" / f"train-{low // SHARD:05d}.parquet", compression="none")
        files = sorted(map(str, (root / "data").glob("*.parquet")))

        def streamed() -> Iterator[tuple[datetime, int, bytes]]:
            rows_of = datasets.load_dataset(
                "parquet", data_files={"train": files}, split="train", streaming=True, cache_dir=str(root / "cache")
            )
            for row in rows_of:
                yield row["taken"], row["label"], row["image"]["bytes"]

        def by_arrow() -> Iterator[tuple[datetime, int, bytes]]:
            for file in files:
                for batch in pq.ParquetFile(file).iter_batches(1024, columns=["taken", "label", "image"]):
                    times, labels, images = (batch.column(name).to_pylist() for name in ("taken", "label", "image"))
                    yield from zip(times, labels, (image["bytes"] for image in images), strict=True)

        def stored(samples: Iterator[tuple[datetime, int, bytes]], place: Path) -> None:
            times, labels, spans = [], [], []
            with place.open("wb") as out:
                for time_, label, data in samples:
                    times.append(time_)
                    labels.append(label)
                    spans.append((out.tell(), len(data)))
                    out.write(data)

        ways: dict[str, Callable[[], object]] = {
            "datasets": lambda: sum(len(data) for _, _, data in streamed()),
            "datasets_stored": lambda: stored(streamed(), root / "datasets.bin"),
            "arrow_stored": lambda: stored(by_arrow(), root / "arrow.bin"),
            "hub": lambda: from_hub(root, "taken", "label", work=root / "work"),
        }
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(5):  # the first imports libraries and fills the page cache
            for name, way in ways.items():
                taken[name].append(timed(way))
    cpu = {name: min(pair[1] for pair in pairs[1:]) for name, pairs in taken.items()}
    return {f"{name}_cpu_s": value for name, value in cpu.items()} | {
        "hub_s": min(pair[0] for pair in taken["hub"][1:]),
        "rate_over_warm_datasets": round(cpu["datasets"] / cpu["hub"], 2),
        "rate_over_datasets_stored": round(cpu["datasets_stored"] / cpu["hub"], 2),
        "rate_over_arrow": round(cpu["arrow_stored"] / cpu["hub"], 2),
    }


def plan(share: float) -> dict[str, float]:
    """The plan of an upload; files are empty, as their content is not read."""
    files = int(FILES * share)
    with folder() as root:
        names = [f"data/{i // 1000:04d}/{i:07d}.jpg" for i in range(files)]
        for place in {name.rpartition("/")[0] for name in names}:
            (root / place).mkdir(parents=True)
        for name in names:
            os.close(os.open(root / name, os.O_CREAT))
        written(root / "README.md", b"")
        written(root / "release.json", b'{"name": "many", "version": "1.0.0"}')
        sums = "".join(f"{'0' * 64}  {name}\n" for name in [*names, "README.md", "release.json"])
        written(root / "SHA256SUMS", sums.encode())
        ours = timed(lambda: plan_of(root))
    return {"files": files, "seconds": ours[0], "cpu_s": ours[1]}


PARTS: dict[str, Callable[[float], dict[str, float]]] = {
    "clear": clear, "features": features, "hub": hub, "plan": plan
}  # fmt: skip


def main() -> None:
    """One JSON object for each part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="of the full size")
    parser.add_argument("--only", default=",".join(PARTS))
    given = parser.parse_args()
    for name in given.only.split(","):
        print(json.dumps({"part": name, **PARTS[name](given.share)}), flush=True)


if __name__ == "__main__":
    main()
