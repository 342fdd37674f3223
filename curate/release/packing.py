"""Images of a run → tars of a release, without personal metadata, several tars in parallel.

The record of a tar is written after it: a tar with a record is complete and is not written again.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import read_json, sha256_bytes, write_json
from driftline.curate.core.errors import BadInput
from driftline.curate.core.executor import Executor
from driftline.curate.core.parsing import rows_of
from driftline.curate.core.run_log import RunLog
from driftline.curate.images.changes import joined, plain_bytes, plain_extension
from driftline.curate.images.shards import read_tar, reader_of, write_tar
from driftline.curate.images.strip_exif import strip_metadata

SHARD_IMAGES = 5000  # images per tar
SIDE = ("id", "class", "licence", "licence_url", "creator", "page_url")


@dataclass(frozen=True)
class FetchedImages:
    """Images in the shards of a fetch stage; checksums are verified."""

    folder: Path
    """of the shards"""
    members: Mapping[str, tuple[int, str]]
    """id → shard and name there"""

    @classmethod
    def open(cls, folder: Path, members: Path, wanted: Collection[str]) -> "FetchedImages":
        """Open the images `wanted`. members: Parquet table with id, shard and member of all images."""
        table = pq.read_table(members, columns=["id", "shard", "member"])
        chosen = table.filter(pc.is_in(table["id"], value_set=pa.array(sorted(wanted), pa.string())))
        rows = rows_of(chosen, "id", "shard", "member")
        places = {id_: (shard, member) for id_, shard, member in rows}
        if lost := sorted(set(wanted) - set(places)):
            raise BadInput(
                f"{len(lost)} images are not in {members}, for example {lost[0]!r}.", "Expected all of them."
            )
        return cls(folder, places)

    def get(self, id_: str) -> tuple[bytes, str]:
        """Bytes and extension of one image. Raises IntegrityError if the shard was changed."""
        shard, member = self.members[id_]
        stored, _, extension = member.rpartition(".")
        return reader_of(self.folder, shard).get(stored), extension

    def plain(self, id_: str) -> tuple[bytes, str]:
        """Bytes and extension of one image in the form that every reader shows alike."""
        data, extension = self.get(id_)
        shown, _ = plain_bytes(data)
        return shown, plain_extension(shown) or extension

    def renamed(self, names: Mapping[str, str]) -> "FetchedImages":
        """The same images by other ids. names: id → the new one."""
        return FetchedImages(self.folder, {names.get(id_, id_): place for id_, place in self.members.items()})

    def subset(self, ids: Collection[str]) -> "FetchedImages":
        """The source restricted to some ids."""
        return FetchedImages(self.folder, {id_: self.members[id_] for id_ in ids})


@dataclass(frozen=True)
class Packed:
    """The result of `pack`."""

    rows: list[dict[str, Any]]
    """the given rows with shard, member, sha256, source_sha256 and changes"""
    sums: dict[str, str]
    """tar → SHA-256"""


_Task = tuple[Path, Path, Sequence[Mapping[str, Any]], FetchedImages, bool]  # tar, its record, rows, images, strip


def pack(
    rows: Sequence[Mapping[str, Any]],
    images: FetchedImages,
    folder: Path,
    records: Path,
    shard_images: int,
    strip: bool = True,
    executor: Executor | None = None,
    run_log: RunLog | None = None,
) -> Packed:
    """Write `folder/bucket_BB-NNNNN.tar` with at most `shard_images` images of one bucket each.

    rows: dicts in release order with id, bucket, uploaded and, for labelled images, class, label and split. records:
    folder for the records of finished tars (not part of the release).
    """
    in_bucket: Counter[int] = Counter()
    of_shard: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        bucket = row["bucket"]
        name = f"bucket_{bucket:02d}-{in_bucket[bucket] // shard_images:05d}.tar"
        in_bucket[bucket] += 1
        of_shard.setdefault(name, []).append(row)
    tasks = [
        (folder / name, records / f"{name}.json", shard, images.subset([row["id"] for row in shard]), strip)
        for name, shard in of_shard.items()
    ]
    record_of: dict[int, dict[str, Any]] = {}
    with (run_log or RunLog(quiet=True)).progress("pack", len(rows), "images") as tick:
        for i, record in (executor or Executor()).run_tasks(_pack, tasks):
            record_of[i] = record
            tick(len(record["members"]))
    packed = Packed([], {})
    for i, (name, shard) in enumerate(of_shard.items()):
        record = record_of[i]
        packed.sums[name] = record["sha256"]
        for row, (member, before, after, changes) in zip(shard, record["members"], strict=True):
            origin = {"source_sha256": row.get("source_sha256") or before, "changes": changes}
            packed.rows.append({**row, "shard": name, "member": member, "sha256": after, **origin})
    return packed


def _pack(task: _Task) -> dict[str, Any]:
    path, record_path, rows, images, strip = task
    if record_path.is_file() and path.is_file():
        finished: dict[str, Any] = read_json(record_path)
        if [m[0].rpartition(".")[0] for m in finished["members"]] == [row["id"] for row in rows]:
            return finished
    record: dict[str, Any] = {"members": []}
    record["sha256"] = write_tar(path, _members(rows, images, strip, record["members"]))
    write_json(record_path, record)
    return record


def published(data: bytes, strip: bool) -> tuple[bytes, str]:
    """(the bytes that a release has of an image, what was done). strip: without personal metadata."""
    shown, made_plain = plain_bytes(data)
    if not strip:
        return shown, made_plain
    bare, stripped = strip_metadata(shown)
    return bare, joined(made_plain, stripped)


def _members(
    rows: Sequence[Mapping[str, Any]], images: FetchedImages, strip: bool, record: list[tuple[str, ...]]
) -> Iterator[tuple[str, bytes]]:
    encode = json.JSONEncoder(sort_keys=True, ensure_ascii=False).encode
    for row in rows:
        id_ = row["id"]
        data, extension = images.get(id_)
        before = sha256_bytes(data)
        bare, done = published(data, strip)
        after = before if bare is data else sha256_bytes(bare)
        extension = plain_extension(bare) or extension
        record.append((f"{id_}.{extension}", before, after, joined(row.get("changes"), done)))
        yield f"{id_}.{extension}", bare
        if row.get("label") is not None:
            yield f"{id_}.cls", str(row["label"]).encode()
        yield f"{id_}.json", encode(_side(row)).encode()


def _side(row: Mapping[str, Any]) -> dict[str, Any]:
    """Constant keys, "" instead of null: Hugging Face's webdataset builder infers columns from the first samples."""
    label = row.get("label")
    return {
        **{name: row.get(name) or "" for name in SIDE},
        "bucket": row["bucket"],
        "label": -1 if label is None else label,
        "uploaded": row["uploaded"],
        "split": row.get("split") or "unlabelled",
    }


def packed_images(folder: Path, packed: Packed) -> Iterator[bytes]:
    """The bytes of the packed images, in the order of their rows."""
    members: dict[str, set[str]] = {}
    for row in packed.rows:
        members.setdefault(row["shard"], set()).add(row["member"])
    for name, wanted in members.items():
        yield from (content for _, content in read_tar(folder / name, wanted))
