"""Packing: images from where they lie → tars of a release, stripped of personal metadata, several tars at a time.

A tar whose record is there is whole and is not written again.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.core.atomic_io import read_json, sha256_bytes, write_json
from curate.core.errors import BadInput
from curate.core.executor import Executor
from curate.core.run_log import RunLog
from curate.images.shards import Reader, read_tar, write_tar
from curate.images.strip_exif import strip_metadata

SHARD_IMAGES = 5000  # images in a tar
SIDE = ("id", "class", "licence", "licence_url", "creator", "page_url")


class Images(Protocol):
    """Where images come from; plain data, so that it can be sent to workers."""

    def get(self, id_: str) -> tuple[bytes, str]:
        """Bytes and extension of one image."""
        ...

    def part(self, ids: Collection[str]) -> Images:
        """The same for some ids."""
        ...


@dataclass(frozen=True)
class Fetched:
    """Images in the shards of a finished fetch, checksums verified. where: id → (shard, extension)."""

    folder: Path
    where: Mapping[str, tuple[int, str]]

    @classmethod
    def open(cls, folder: Path, members: Path, wanted: Collection[str]) -> Fetched:
        """members: Parquet with id, shard, member of everything that is there."""
        table = pq.read_table(members, columns=["id", "shard", "member"])
        chosen = table.filter(pc.is_in(table["id"], value_set=pa.array(sorted(wanted), pa.string())))
        rows = zip(*(chosen[c].to_pylist() for c in ("id", "shard", "member")), strict=True)
        where = {id_: (shard, member.rpartition(".")[2]) for id_, shard, member in rows}
        if lost := sorted(set(wanted) - set(where)):
            raise BadInput(f"{len(lost)} images are not in {members}, {lost[0]!r} the first.", "Expected all of them.")
        return cls(folder, where)

    def get(self, id_: str) -> tuple[bytes, str]:
        """Bytes and extension. Raises IntegrityError where the shard is not as it was fetched."""
        shard, extension = self.where[id_]
        return _reader(self.folder, shard).get(id_), extension

    def part(self, ids: Collection[str]) -> Fetched:
        """The same for some ids."""
        return Fetched(self.folder, {id_: self.where[id_] for id_ in ids})


@lru_cache(maxsize=64)
def _reader(folder: Path, shard: int) -> Reader:
    return Reader(folder, shard)


@dataclass(frozen=True)
class Held:
    """Images in memory: id → (bytes, extension)."""

    images: Mapping[str, tuple[bytes, str]]

    def get(self, id_: str) -> tuple[bytes, str]:
        """Bytes and extension."""
        return self.images[id_]

    def part(self, ids: Collection[str]) -> Held:
        """The same for some ids."""
        return Held({id_: self.images[id_] for id_ in ids})


@dataclass(frozen=True)
class Packed:
    """rows: those given, in order, with shard, member, sha256 and source_sha256. sums: tar → its checksum.
    compressed_again: ids of damaged files that could not be taken apart."""

    rows: list[dict[str, Any]]
    sums: dict[str, str]
    compressed_again: list[str]


@dataclass(frozen=True)
class _Task:
    path: Path
    record: Path
    rows: Sequence[Mapping[str, Any]]
    images: Images
    strip: bool


def pack(
    rows: Sequence[Mapping[str, Any]],
    images: Images,
    folder: Path,
    records: Path,
    shard_images: int,
    strip: bool = True,
    executor: Executor | None = None,
    run_log: RunLog | None = None,
) -> Packed:
    """Write `folder/bucket_BB-NNNNN.tar`, at most `shard_images` images each, none across buckets.

    rows: dicts with id, bucket, uploaded and, of labelled images, class, label and split; in release order. records:
    folder for what is known of finished tars (not part of the release).
    """
    in_bucket: Counter[int] = Counter()
    of_shard: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        name = f"bucket_{row['bucket']:02d}-{in_bucket[row['bucket']] // shard_images:05d}.tar"
        in_bucket[row["bucket"]] += 1
        of_shard.setdefault(name, []).append(row)
    tasks = [
        _Task(folder / name, records / f"{name}.json", some, images.part([r["id"] for r in some]), strip)
        for name, some in of_shard.items()
    ]
    found: dict[int, dict[str, Any]] = {}
    with (run_log or RunLog(quiet=True)).progress("pack", len(rows), "images") as tick:
        for i, record in (executor or Executor()).run_tasks(_pack, tasks):
            found[i] = record
            tick(len(record["members"]))
    packed = Packed([], {}, [])
    for i, (name, some) in enumerate(of_shard.items()):
        record = found[i]
        packed.sums[name] = record["sha256"]
        packed.compressed_again.extend(record["compressed_again"])
        for row, (member, before, after) in zip(some, record["members"], strict=True):
            packed.rows.append({**row, "shard": name, "member": member, "source_sha256": before, "sha256": after})
    packed.compressed_again.sort()
    return packed


def _pack(task: _Task) -> dict[str, Any]:
    if task.record.is_file() and task.path.is_file():
        known: dict[str, Any] = read_json(task.record)
        if [m[0].rpartition(".")[0] for m in known["members"]] == [r["id"] for r in task.rows]:
            return known
    record: dict[str, Any] = {"members": [], "compressed_again": []}
    digest = hashlib.sha256()
    write_tar(task.path, _members(task, record), digest)
    record["sha256"] = digest.hexdigest()
    write_json(task.record, record)
    return record


def _members(task: _Task, record: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    encode = json.JSONEncoder(sort_keys=True, ensure_ascii=False).encode
    for row in task.rows:
        id_ = row["id"]
        data, extension = task.images.get(id_)
        before = sha256_bytes(data)
        bare, again = strip_metadata(data) if task.strip else (data, False)
        after = before if bare is data else sha256_bytes(bare)
        record["members"].append((f"{id_}.{extension}", before, after))
        if again:
            record["compressed_again"].append(id_)
        yield f"{id_}.{extension}", bare
        if row.get("label") is not None:
            yield f"{id_}.cls", str(row["label"]).encode()
        yield f"{id_}.json", encode(_side(row)).encode()


def _side(row: Mapping[str, Any]) -> dict[str, Any]:
    """Constant keys, "" not null: HF's webdataset builder infers columns from the first samples of one split."""
    label = row.get("label")
    return {
        **{name: row.get(name) or "" for name in SIDE},
        "bucket": row["bucket"],
        "label": -1 if label is None else label,
        "uploaded": row["uploaded"],
        "split": row.get("split") or "unlabelled",
    }


def pictures(folder: Path, packed: Packed) -> Iterator[bytes]:
    """The packed images, in the order of their rows."""
    for name in packed.sums:
        for member, content in read_tar(folder / name):
            if not member.endswith((".cls", ".json")):
                yield content
