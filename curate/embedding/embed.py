"""Shards + encoder → vectors: unit length, float16, in clip-retrieval's folder convention.

`img_emb/img_emb_00000.npy` holds (N, D) float16, `metadata/metadata_00000.parquet` the ids in the same order,
one pair per shard, so that embeddings made by clip-retrieval can be used and ours by its tools. The metadata
part is written last: it exists only when the vectors are whole.
"""

from __future__ import annotations

import io
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.core.atomic_io import write_array, write_parquet
from curate.core.errors import BadInput, MissingFile
from curate.core.executor import Executor
from curate.core.run_log import RunLog
from curate.core.torch_threads import one_thread
from curate.encoders import Encoder, EncoderSpec
from curate.images.near_duplicates import perceptual_hashes, thumbnail
from curate.images.shards import Reader

PART = pa.schema([("id", pa.string()), ("bucket", pa.int32()), ("fault", pa.string()), ("phash", pa.uint64())])
AHEAD = 4  # batches that each decoding process prepares in advance
GROUPS = 4  # groups of shards for each device of a cluster: what is lost with a machine


@dataclass(frozen=True)
class Task:
    """One shard: the rows of `members` that are in it, and where its vectors go. decoders: processes that decode for
    the one that computes; 0: it decodes itself."""

    images: Path
    shard: int
    part: pa.Table
    spec: EncoderSpec
    out: Path
    batch: int
    decoders: int = 0


@dataclass(frozen=True)
class Decoded:
    """One batch: ids and faults (None: good) of its rows, the good ones' tensor and hashes."""

    ids: list[str]
    faults: list[str | None]
    tensor: Any
    hashes: list[int | None]


@dataclass(frozen=True)
class Pace:
    """images in `seconds`, of which the model computed `model_seconds` (the rest: reading, decoding, writing)."""

    images: int
    seconds: float
    model_seconds: float


def embed(
    images: Path,
    members: pa.Table,
    spec: EncoderSpec,
    out: Path,
    run_log: RunLog,
    batch: int = 64,
    executor: Executor | None = None,
    decoders: int | None = None,
) -> Counter[str]:
    """Embed every image of `members` (rows of the fetch index plus `bucket`); finished shards are skipped.

    images: folder of the shards. Returns counts by fault ("" = kept). decoders: processes that decode for each device
    (default: none on CPU, where every worker decodes for itself, else one a worker of the executor). Batches never
    cross a shard and a CPU worker computes on one thread, so a resumed run, and any number of workers, compute the same
    bytes. With Ray and CUDA each task has one GPU.
    """
    executor = executor or Executor()
    device = spec.load().device
    if decoders is None:
        decoders = 0 if device == "cpu" else executor.workers
    numbers = members["shard"].to_numpy()
    shards = np.unique(numbers).tolist() if len(members) else []
    tasks = [
        Task(images, s, members.filter(pa.array(numbers == s)), spec, out, batch, decoders)
        for s in shards
        if not _metadata(out, s).exists()
    ]
    spread = executor if (device == "cpu" and not decoders) or executor.kind == "ray" else Executor()
    groups = [[task] for task in tasks]
    if decoders and tasks:  # processes that decode are started once a group
        size = -(-len(tasks) // (GROUPS * executor.workers)) if spread.kind == "ray" else len(tasks)
        groups = [tasks[i : i + size] for i in range(0, len(tasks), size)]
    paces: list[Pace] = []
    begun = time.monotonic()
    with run_log.progress("embed", len(members), "images") as tick:
        tick(len(members) - sum(len(task.part) for task in tasks))
        if spread.kind == "local" and decoders:
            paces += [_embed_shards(group, tick) for group in groups]
        else:
            for i, pace in spread.run_tasks(_embed_shards, groups, gpus=0 if device == "cpu" else 1):
                paces.append(pace)
                tick(sum(len(task.part) for task in groups[i]))
    _tell(run_log, paces, time.monotonic() - begun)
    counts: Counter[str] = Counter()
    for shard in shards:
        faults = pq.read_table(_metadata(out, shard), columns=["fault"])["fault"].to_pylist()
        counts.update(f or "" for f in faults)
    return counts


def _tell(run_log: RunLog, paces: Sequence[Pace], seconds: float) -> None:
    """Throughput, and what share of it the model alone would allow."""
    done = sum(p.images for p in paces)
    if done:
        share = sum(p.model_seconds for p in paces) / max(sum(p.seconds for p in paces), 1e-9)
        run_log.say(
            f"embed: {done:,} images, {done / max(seconds, 1e-9):,.1f} a second, {share:.0%} of the model's own speed",
            images=done,
            images_per_second=round(done / max(seconds, 1e-9), 2),
            share_of_model=round(share, 4),
        )


def _embed_shards(tasks: Sequence[Task], tick: Callable[[int], None] | None = None) -> Pace:
    """Embed the shards of one group, in order, and write each when its last batch is done."""
    begun, model_seconds, images = time.monotonic(), 0.0, 0
    encoder = tasks[0].spec.load()
    with one_thread() if encoder.device == "cpu" and not tasks[0].decoders else nullcontext():
        held: list[Decoded] = []
        vectors: list[npt.NDArray[np.float16]] = []
        for number, last, batch in _batches(tasks, encoder):
            if batch.tensor is not None:
                clock = time.monotonic()
                vectors.append(encoder.images(batch.tensor).astype(np.float16))
                model_seconds += time.monotonic() - clock
            held.append(Decoded(batch.ids, batch.faults, None, batch.hashes))
            images += len(batch.ids)
            if last:
                _write(tasks[number], held, vectors, encoder)
                held, vectors = [], []
            if tick is not None:
                tick(len(batch.ids))
    return Pace(images, time.monotonic() - begun, model_seconds)


def _batches(tasks: Sequence[Task], encoder: Encoder) -> Iterator[tuple[int, bool, Decoded]]:
    """Yield (position of the task, last of its shard?, batch) in order; decoded here, or in processes of their own."""
    plan = [
        (number, low, min(low + task.batch, len(task.part)))
        for number, task in enumerate(tasks)
        for low in range(0, len(task.part), task.batch)
    ]
    stretches = Stretches(tuple((t.images, t.shard, t.part.select(["id"])) for t in tasks), plan, encoder.prepare)
    if tasks[0].decoders:
        from torch.utils.data import DataLoader

        pinned = encoder.device != "cpu"
        decoded: Iterator[Decoded] = iter(
            DataLoader(
                stretches,  # type: ignore[arg-type]
                batch_size=None,
                num_workers=min(tasks[0].decoders, len(plan)),
                prefetch_factor=AHEAD,
                pin_memory=pinned,
                multiprocessing_context="forkserver",
            )
        )
    else:
        decoded = (stretches[i] for i in range(len(plan)))
    for (number, _, high), batch in zip(plan, decoded, strict=True):
        yield number, high == len(tasks[number].part), batch


@dataclass(frozen=True)
class Stretches:
    """The i-th batch, decoded: what a torch DataLoader asks for. plan: (shard's position, first row, end)."""

    shards: tuple[tuple[Path, int, pa.Table], ...]
    plan: list[tuple[int, int, int]]
    prepare: Callable[[Any], Any]

    def __len__(self) -> int:
        return len(self.plan)

    def __getitem__(self, i: int) -> Decoded:
        import torch
        from PIL import Image

        number, low, high = self.plan[i]
        images, shard, part = self.shards[number]
        reader = _reader(images, shard)
        ids = part["id"].slice(low, high - low).to_pylist()
        faults: list[str | None] = []
        tensors, thumbs = [], []
        for id_ in ids:
            data = reader.get(id_)
            try:
                with Image.open(io.BytesIO(data)) as image:
                    prepared = self.prepare(image)
                thumb = thumbnail(data)
            except Exception:  # it decoded when it was fetched, but not to RGB: rare modes of TIFF
                faults.append("not_rgb")
                continue
            tensors.append(prepared)
            thumbs.append(thumb)
            faults.append(None)
        if not tensors:
            return Decoded(ids, faults, None, [None] * len(ids))
        known: Iterator[int] = iter(perceptual_hashes(torch.stack(thumbs)).tolist())
        return Decoded(ids, faults, torch.stack(tensors), [None if f else next(known) for f in faults])


@lru_cache(maxsize=2)
def _reader(images: Path, shard: int) -> Reader:
    return Reader(images, shard)


def _write(task: Task, held: Sequence[Decoded], vectors: Sequence[npt.NDArray[np.float16]], encoder: Encoder) -> None:
    stacked = np.concatenate(vectors) if vectors else np.zeros((0, encoder.width), np.float16)
    if not np.isfinite(stacked).all():
        raise BadInput(
            f"The encoder gave vectors that are not finite for shard {task.shard}.",
            "Expected unit vectors.",
            "Check the weights (embed.weights), or set embed.precision: float32.",
        )
    write_array(task.out / "img_emb" / f"img_emb_{task.shard:05d}.npy", stacked)
    columns = [
        pa.array([id_ for d in held for id_ in d.ids], pa.string()),
        task.part["bucket"].combine_chunks().cast(pa.int32()),
        pa.array([f for d in held for f in d.faults], pa.string()),
        pa.array([h for d in held for h in d.hashes], pa.uint64()),
    ]
    write_parquet(_metadata(task.out, task.shard), pa.Table.from_arrays(columns, schema=PART))


def _metadata(out: Path, shard: int) -> Path:
    return out / "metadata" / f"metadata_{shard:05d}.parquet"


def parts(folder: Path) -> Iterator[tuple[pa.Table, npt.NDArray[np.float16]]]:
    """Yield (ids, buckets and hashes, memory-mapped vectors (N, D) float16) of every part, in shard order."""
    for metadata in sorted((folder / "metadata").glob("metadata_*.parquet")):
        table = pq.read_table(metadata)
        table = table.filter(pc.is_null(table["fault"]))
        path = folder / "img_emb" / metadata.name.replace("metadata_", "img_emb_").replace(".parquet", ".npy")
        vectors = np.load(path, mmap_mode="r")
        if len(vectors) != len(table):
            raise BadInput(f"{path} has {len(vectors)} vectors for {len(table)} ids.", "", "Embed the shard again.")
        yield table, vectors


def vectors_of(folder: Path, ids: list[str]) -> npt.NDArray[np.float16]:
    """(N, D) float16 in the order of `ids`, from a finished embed stage. Raises MissingFile where it has no vectors."""
    where = {id_: i for i, id_ in enumerate(ids)}
    out: npt.NDArray[np.float16] | None = None
    for table, vectors in parts(folder):
        if out is None:
            out = np.zeros((len(ids), vectors.shape[1]), np.float16)
        for position, id_ in enumerate(table["id"].to_pylist()):
            if id_ in where:
                out[where[id_]] = vectors[position]
    if out is None:
        raise MissingFile(f"{folder} holds no vectors.", "Expected a finished embed stage.")
    return out
