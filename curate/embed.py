"""Shards + encoder → vectors: unit length, float16, in clip-retrieval's folder convention.

`img_emb/img_emb_00000.npy` holds (N, D) float16, `metadata/metadata_00000.parquet` the ids in the same order,
one pair per shard, so that embeddings made by clip-retrieval can be used and ours by its tools. The metadata
part is written last: it exists only when the vectors are whole.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.encoders import EncoderSpec
from curate.ground.errors import BadInput
from curate.ground.files import write_array, write_parquet
from curate.ground.progress import Journal
from curate.ground.workers import Engine
from curate.shards import read_images

PART = pa.schema([("id", pa.string()), ("bucket", pa.int32()), ("fault", pa.string())])


@dataclass(frozen=True)
class Task:
    """One shard: the rows of `members` that are in it, and where its vectors go."""

    images: Path
    shard: int
    part: pa.Table
    spec: EncoderSpec
    out: Path
    batch: int


def embed(
    images: Path,
    members: pa.Table,
    spec: EncoderSpec,
    out: Path,
    journal: Journal,
    batch: int = 64,
    engine: Engine | None = None,
) -> Counter[str]:
    """Embed every image of `members` (rows of the fetch index plus `bucket`); finished shards are skipped.

    images: folder of the shards. Returns counts by fault ("" = kept). Batches never cross a shard and a worker
    computes on one thread, so a resumed run, and any number of workers, compute the same bytes.
    """
    numbers = members["shard"].to_numpy()
    shards = np.unique(numbers).tolist() if len(members) else []
    tasks = [
        Task(images, s, members.filter(pa.array(numbers == s)), spec, out, batch)
        for s in shards
        if not _metadata(out, s).exists()
    ]
    with journal.progress("embed", len(members), "images") as tick:
        tick(len(members) - sum(len(task.part) for task in tasks))
        for i, _ in (engine or Engine()).spread(_embed_shard, tasks):
            tick(len(tasks[i].part))
    counts: Counter[str] = Counter()
    for shard in shards:
        faults = pq.read_table(_metadata(out, shard), columns=["fault"])["fault"].to_pylist()
        counts.update(f or "" for f in faults)
    return counts


def _embed_shard(task: Task) -> None:
    import torch
    from PIL import Image

    part, shard, out = task.part, task.shard, task.out
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # sums in another order would differ in the last bit
    encoder = task.spec.load()
    buckets = dict(zip(part["id"].to_pylist(), part["bucket"].to_pylist(), strict=True))
    rows: list[dict[str, Any]] = []
    vectors: list[npt.NDArray[np.float16]] = []
    waiting: list[Any] = []

    def flush() -> None:
        if waiting:
            vectors.append(encoder.images(torch.stack(waiting)).astype(np.float16))
            waiting.clear()

    for id_, data in read_images(task.images, part, shard):
        fault = None
        try:
            with Image.open(io.BytesIO(data)) as image:
                waiting.append(encoder.prepare(image))
        except Exception:  # it decoded when it was fetched, but not to RGB: rare modes of TIFF
            fault = "not_rgb"
        rows.append({"id": id_, "bucket": buckets[id_], "fault": fault})
        if len(waiting) == task.batch:
            flush()
    flush()
    torch.set_num_threads(threads)
    stacked = np.concatenate(vectors) if vectors else np.zeros((0, encoder.width), np.float16)
    if not np.isfinite(stacked).all():
        raise BadInput(
            f"The encoder gave vectors that are not finite for shard {shard}.",
            "Expected unit vectors.",
            "Check the weights (embed.weights).",
        )
    write_array(out / "img_emb" / f"img_emb_{shard:05d}.npy", stacked)
    write_parquet(_metadata(out, shard), pa.Table.from_pylist(rows, schema=PART))


def _metadata(out: Path, shard: int) -> Path:
    return out / "metadata" / f"metadata_{shard:05d}.parquet"


def parts(folder: Path) -> Iterator[tuple[pa.Table, npt.NDArray[np.float16]]]:
    """Yield (ids and buckets, memory-mapped vectors (N, D) float16) of every part, in shard order."""
    for metadata in sorted((folder / "metadata").glob("metadata_*.parquet")):
        table = pq.read_table(metadata)
        table = table.filter(pc.is_null(table["fault"]))
        path = folder / "img_emb" / metadata.name.replace("metadata_", "img_emb_").replace(".parquet", ".npy")
        vectors = np.load(path, mmap_mode="r")
        if len(vectors) != len(table):
            raise BadInput(f"{path} has {len(vectors)} vectors for {len(table)} ids.", "", "Embed the shard again.")
        yield table, vectors
