"""Shards + encoder → vectors: unit length, float16, in clip-retrieval's folder convention.

Per shard, `img_emb/img_emb_00000.npy` holds (N, D) float16 and `metadata/metadata_00000.parquet` the ids in the same
order, so that clip-retrieval's tools read our vectors and we read theirs. The metadata file is written last: if it
exists, the vectors are complete.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch.utils.data import DataLoader

from driftline.curate.core.atomic_io import write_array, write_parquet
from driftline.curate.core.errors import BadInput
from driftline.curate.core.executor import Executor, ahead, one_thread
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.system import children
from driftline.curate.embedding.features import encoder_name, filled, with_stored
from driftline.curate.embedding.vector_store import PART, vectors_path
from driftline.curate.encoders import Encoder, EncoderSpec
from driftline.curate.foreign.images import read_rgb
from driftline.curate.images.near_duplicates import perceptual_hashes, thumbnail
from driftline.curate.images.shards import reader_of
from driftline.curate.store.database import Place, open_store
from driftline.curate.store.photos import Look, keep_vectors, looks

PREFETCH = 4  # batches that each decoding process prepares in advance
GROUPS = 4  # Ray: groups of shards per worker; a lost machine loses at most one group


@dataclass(frozen=True)
class Task:
    """One shard to embed."""

    images: Path
    """folder of the shards"""
    shard: int
    """number of the shard"""
    part: pa.Table
    """the rows of `members` that are in the shard"""
    spec: EncoderSpec
    """which encoder"""
    out: Path
    """folder of the vectors"""
    batch: int
    """images per batch"""
    decoders: int
    """processes that decode for the one that computes; 0: a thread of its own"""
    store: Place | None = None
    """where vectors are kept; None: nowhere"""
    stored: Mapping[str, Look] = field(default_factory=dict)
    """SHA-256 → what the store has of its images"""

    def todo(self) -> pa.Table:
        """The rows of `part` of which the store has nothing."""
        if not self.stored:
            return self.part
        return self.part.filter(pa.array([digest not in self.stored for digest in self.part["sha256"].to_pylist()]))


@dataclass(frozen=True)
class Decoded:
    """One batch of N rows, M of which have a good image."""

    ids: list[str]
    """(N,)"""
    reasons: list[str | None]
    """(N,) why the image is dropped; None: good"""
    tensor: Any
    """(M, ...) prepared images; None if M is 0"""
    hashes: list[int | None]
    """(N,) perceptual hashes; None for dropped images"""


def embed(
    images: Path,
    members: pa.Table,
    spec: EncoderSpec,
    out: Path,
    run_log: RunLog,
    batch: int = 64,
    executor: Executor | None = None,
    decoders: int | None = None,
    store: Place | None = None,
) -> Counter[str]:
    """Embed every image of `members` (rows of the fetch index plus `bucket`); finished shards are skipped.

    images: folder of the shards. decoders: processes that decode for each device (default: on CPU none, because every
    worker has a thread that decodes; else as many as the executor has workers). With Ray and CUDA each task has one
    GPU.
    Returns the number of images by reason ("": kept).

    store: vectors of earlier runs are taken from it, and new ones are kept in it.

    Batches never cross a shard and a CPU worker computes on one thread, so that a resumed run, any number of workers
    and any store give the same bytes.
    """
    executor = executor or Executor()
    encoder = spec.load()
    device = encoder.device
    if decoders is None:
        decoders = 0 if device == "cpu" else executor.workers
    numbers = members["shard"].to_numpy()
    shards = np.unique(numbers).tolist() if len(members) else []
    tasks = [
        Task(images, s, members.filter(pa.array(numbers == s)), spec, out, batch, decoders, store)
        for s in shards
        if not _metadata(out, s).exists()
    ]
    if store is not None and store.reads:
        name = encoder_name(encoder, batch)
        with open_store(store.folder) as base:
            tasks = [replace(task, stored=looks(base, name, task.part["sha256"].to_pylist())) for task in tasks]
    if executor.kind == "local" and (device != "cpu" or decoders):
        executor = Executor()  # one process computes: the device is shared, or the cores decode
    elif len(tasks) > 1:
        executor = executor.for_items(sum(len(task.todo()) for task in tasks))
    groups = [[task] for task in tasks]
    if decoders and tasks:  # the decoding processes are started once per group
        size = -(-len(tasks) // (GROUPS * executor.workers)) if executor.kind == "ray" else len(tasks)
        groups = [tasks[i : i + size] for i in range(0, len(tasks), size)]
    done, started = 0, time.monotonic()
    with run_log.progress("embed", len(members), "images") as tick:
        tick(len(members) - sum(len(task.part) for task in tasks))
        if executor.kind == "local" and decoders:
            done = sum(_embed_shards(group, tick) for group in groups)
        else:
            for i, images_of_group in executor.run_tasks(_embed_shards, groups, gpus=0 if device == "cpu" else 1):
                done += images_of_group
                tick(sum(len(task.part) for task in groups[i]))
    if done:
        speed = done / (time.monotonic() - started)
        run_log.say(f"embed: {done:,} images, {speed:,.1f} a second", images=done, images_per_second=round(speed, 2))
    counts: Counter[str] = Counter()
    for shard in shards:
        reasons = pq.read_table(_metadata(out, shard), columns=["fault"])["fault"].to_pylist()
        counts.update(reason or "" for reason in reasons)
    return counts


def _embed_shards(tasks: Sequence[Task], tick: Callable[[int], None] = lambda n: None) -> int:
    """Embed the shards of one group in order; each is written after its last batch. Returns the number of images."""
    encoder = tasks[0].spec.load()
    images = 0
    with one_thread() if encoder.device == "cpu" and not tasks[0].decoders else nullcontext():
        batches: list[Decoded] = []
        vectors: list[npt.NDArray[np.float16]] = []
        for task in tasks:
            if not len(task.todo()):
                _write(task, [], [], encoder)
            tick(len(task.part) - len(task.todo()))
        for number, last, batch in _batches(tasks, encoder):
            if batch.tensor is not None:
                vectors.append(encoder.images(filled(batch.tensor))[: len(batch.tensor)].astype(np.float16))
            batches.append(replace(batch, tensor=None))
            images += len(batch.ids)
            if last:
                _write(tasks[number], batches, vectors, encoder)
                batches, vectors = [], []
            tick(len(batch.ids))
    return images


def _batches(tasks: Sequence[Task], encoder: Encoder) -> Iterator[tuple[int, bool, Decoded]]:
    """Yield (position of the task, last of its shard?, batch) in order, decoded by a thread or by a DataLoader's
    processes."""
    parts = [task.todo().select(["id"]) for task in tasks]
    plan = [
        (number, low, min(low + task.batch, len(parts[number])))
        for number, task in enumerate(tasks)
        for low in range(0, len(parts[number]), task.batch)
    ]
    if not plan:
        return
    shards = tuple((t.images, t.shard, part) for t, part in zip(tasks, parts, strict=True))
    batches = BatchDataset(shards, plan, encoder.prepare)
    if tasks[0].decoders:
        loader: DataLoader[Decoded] = DataLoader(
            batches,  # type: ignore[arg-type]
            batch_size=None,
            num_workers=min(tasks[0].decoders, len(plan)),
            prefetch_factor=PREFETCH,
            pin_memory=encoder.device != "cpu",
            multiprocessing_context="forkserver",
        )
        with children():
            decoded: Iterator[Decoded] = iter(loader)
    else:
        decoded = ahead(batches.__getitem__, range(len(plan)))
    for (number, _, high), batch in zip(plan, decoded, strict=True):
        yield number, high == len(parts[number]), batch


@dataclass(frozen=True)
class BatchDataset:
    """Decoded batches by number, as a map-style dataset for torch's DataLoader."""

    shards: tuple[tuple[Path, int, pa.Table], ...]
    """(folder of the shards, number, ids)"""
    plan: list[tuple[int, int, int]]
    """of each batch: (position in `shards`, first row, end)"""
    prepare: Callable[[Any], Any]
    """of the encoder"""

    def __len__(self) -> int:
        return len(self.plan)

    def __getitem__(self, i: int) -> Decoded:
        number, low, high = self.plan[i]
        images, shard, part = self.shards[number]
        reader = reader_of(images, shard)
        ids = part["id"].slice(low, high - low).to_pylist()
        reasons: list[str | None] = []
        tensors, thumbnails = [], []
        for id_ in ids:
            data = reader.get(id_)
            try:
                rgb = read_rgb(data, id_)
                thumbnails.append(thumbnail(data, rgb))
            except Exception:  # fetch decoded the image, but rare modes of TIFF cannot be converted to RGB
                reasons.append("not_rgb")
                continue
            tensors.append(self.prepare(rgb))
            reasons.append(None)
        if not tensors:
            return Decoded(ids, reasons, None, [None] * len(ids))
        hashes: Iterator[int] = iter(perceptual_hashes(torch.stack(thumbnails)).tolist())
        return Decoded(ids, reasons, torch.stack(tensors), [None if r else next(hashes) for r in reasons])


def _write(
    task: Task, batches: Sequence[Decoded], vectors: Sequence[npt.NDArray[np.float16]], encoder: Encoder
) -> None:
    digests = task.part["sha256"].to_pylist() if task.store is not None else []
    stacked = np.concatenate(vectors) if vectors else np.zeros((0, encoder.width), np.float16)
    faults = [reason for b in batches for reason in b.reasons]
    hashes = [hash_ for b in batches for hash_ in b.hashes]
    if task.store is not None and task.stored:
        stacked, faults, hashes = with_stored(task.store, task.stored, digests, stacked, faults, hashes)
    if not np.isfinite(stacked).all():
        raise BadInput(
            f"The encoder returned vectors that are not finite for shard {task.shard}.",
            "Expected unit vectors.",
            "Check the weights (embed.weights), or set embed.precision: float32.",
        )
    metadata = _metadata(task.out, task.shard)
    npy = vectors_path(metadata)
    write_array(npy, stacked)
    columns = [
        task.part["id"].combine_chunks(),
        task.part["bucket"].combine_chunks().cast(pa.int32()),
        pa.array(faults, pa.string()),
        pa.array(hashes, pa.uint64()),
    ]
    if task.store is not None:
        with open_store(task.store.folder) as store:
            judged = list(zip(faults, hashes, strict=True))
            keep_vectors(store, encoder_name(encoder, task.batch), npy, digests, judged)
    write_parquet(metadata, pa.Table.from_arrays(columns, schema=PART))


def _metadata(out: Path, shard: int) -> Path:
    return out / "metadata" / f"metadata_{shard:05d}.parquet"
