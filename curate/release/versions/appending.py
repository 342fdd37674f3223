"""Version n + 1 of a release from version n: its tars byte for byte, and new tars for what is new.

An image of version n that is still accepted, with the same label, bucket, licence, upload time and bytes, stays where
it is, with its group and its side of every split. New images of a linked uploader, or near copies, take the side of the
images that are there. Images that changed are written again into a new tar; what they were is a tombstone.
"""

from __future__ import annotations

import hashlib
import re
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from driftline.curate.core.atomic_io import sha256_file, writing
from driftline.curate.core.errors import BadConfig, IntegrityError
from driftline.curate.core.outside.tables import read_parquet
from driftline.curate.images.shards import read_tar, write_tar
from driftline.curate.release.document import AGAIN
from driftline.curate.release.format import METADATA, Release
from driftline.curate.release.packing import Packed
from driftline.curate.release.versions.tombstones import WITHDRAWN, Tombstone, id_of

Row = Mapping[str, Any]
Pack = Callable[[list[dict[str, Any]], Mapping[int, int]], Packed]
NAME = re.compile(r"bucket_(\d+)-(\d+)\.tar")
SAME = {  # column → what a tombstone says if it changed
    "class": "relabelled: {} → {}",
    "label": "other label: {} → {}",
    "bucket": "other bucket: {} → {}",
    "uploaded": "other upload time",
    "licence": "other licence: {} → {}",
    "licence_url": "other licence: {} → {}",
    "source_sha256": "other bytes",
}


@dataclass(frozen=True)
class Former:
    """The release that is appended to."""

    release: Release
    rows: Mapping[str, Row]
    """id → its row of metadata.parquet"""

    @classmethod
    def of(cls, release: Release, own: Mapping[str, str] = MappingProxyType({})) -> Former:
        """By the release's table. own: id in the release → id in the run, where it is another one."""
        rows = release.table.to_pylist()
        rows = [row | {name: own.get(row[name], row[name]) for name in ("id", "group")} for row in rows]
        return cls(release, {row["id"]: row for row in rows})

    def classes(self, wanted: Sequence[str]) -> list[str]:
        """Its classes, which keep their labels, then the new ones. Raises BadConfig if one of its classes is gone."""
        former = self.release.classes
        if gone := [name for name in former if name not in wanted]:
            raise BadConfig(
                f"The class {gone[0]!r} of {self.release.name} {self.release.facts['version']} is not among "
                "retrieve.concepts.",
                "Expected all its classes: an appended release keeps their labels.",
                "Publish without release.append.",
            )
        return former + [name for name in wanted if name not in former]

    def bridges(self, rows: Iterable[Row], copies: Mapping[str, str]) -> set[str]:
        """Ids of new images that link two groups of the former release, which may be on different sides.

        rows: with id and user. copies: id → group of near copies. New images are taken in the order of their ids.
        """
        parent: dict[tuple[str, str], tuple[str, str]] = {}
        groups: dict[tuple[str, str], set[str]] = {}
        linking = set()

        def root(key: tuple[str, str]) -> tuple[str, str]:
            while (up := parent.setdefault(key, key)) != key:
                key = up
            return key

        for row in sorted(rows, key=lambda row: (row["id"] not in self.rows, row["id"])):
            old = self.rows.get(row["id"])
            user = row.get("user") or (old and old["user"])  # a release may not say it
            roots = sorted({root(key) for key in (("copy", copies[row["id"]]), ("user", user or "")) if key[1]})
            met = set().union(*(groups.get(key, set()) for key in roots), [] if old is None else [old["group"]])
            if old is None and len(met) > 1:
                linking.add(row["id"])
                continue
            for key in roots:
                parent[key] = roots[0]
            groups[roots[0]] = met
        return linking

    def groups(self, rows: Sequence[Row], linked: Sequence[str]) -> list[str]:
        """The group of each row. linked: from `split_groups`. Former images keep theirs, and give it to new ones."""
        former = {
            g: self.rows[row["id"]]["group"] for row, g in zip(rows, linked, strict=True) if row["id"] in self.rows
        }
        return [
            self.rows[row["id"]]["group"] if row["id"] in self.rows else former.get(g, g)
            for row, g in zip(rows, linked, strict=True)
        ]

    def sides(self, rows: Sequence[Row], split: str) -> dict[str, str]:
        """Group → its side in `split`, of the former images among `rows`; {} for a split that is new."""
        if split not in self.release.facts["splits"]:
            return {}
        old = (self.rows[row["id"]] for row in rows if row["id"] in self.rows)
        return {row["group"]: row[split] for row in old}


@dataclass(frozen=True)
class Old:
    """An image in a tar of the former release that is alive there."""

    tar: str
    """path in the release"""
    place: int
    """position in the tar"""
    row: Row
    """of metadata.parquet or unlabelled.parquet"""


@dataclass(frozen=True)
class Appended:
    """The result of `append_tars`."""

    packed: Packed
    tombstones: list[Tombstone] = field(default_factory=list)
    """of its tars, those of former versions included"""
    tars: dict[str, Any] = field(default_factory=dict)
    """what CHANGES says of tars: kept (number), new (paths), rewritten (path, SHA-256 before and after)"""


def labelled(release: Release) -> dict[str, Old]:
    """id → where it is, of the images of a release."""
    rows = release.table.to_pylist()
    return {row["id"]: Old(f"shards/{row['shard']}", i, row) for i, row in enumerate(rows)}


def unlabelled(release: Release) -> dict[str, Old]:
    """id → where it is, of the unlabelled images that a release holds."""
    tars = sorted(name for name in release.checksums() if name.startswith("unlabelled/"))
    if not tars:
        return {}
    rows = {row["id"]: row for row in read_parquet(release.path / "unlabelled.parquet").to_pylist()}
    images: dict[str, Old] = {}
    for name in tars:
        with tarfile.open(release.path / name, "r:") as tar:
            ids = list(dict.fromkeys(map(id_of, tar.getnames())))
        alive = (i for i in ids if i in rows and i not in release.dead(name))
        images |= {i: Old(name, place, rows[i]) for place, i in enumerate(alive)}
    return images


def changed(row: Row, old: Row) -> str:
    """Why an image cannot stay in its tar; "" if it can.

    >>> changed({"class": "bus", "bucket": 1}, {"class": "car", "bucket": 1})
    'relabelled: car → bus'
    """
    for column, text in SAME.items():
        before, after = old.get(column) or "", row.get(column) or ""
        if column in old and before != after:
            return text.format(before, after)
    return ""


def append_tars(
    rows: Sequence[Row],
    old: Mapping[str, Old],
    former: Release,
    part: str,
    out: Path,
    pack: Pack,
    version: str,
    why: Mapping[str, str],
    purge: bool = False,
) -> Appended:
    """Copy the tars of `former` below `part` ("shards" or "unlabelled") to `out`, and write those of new images.

    rows: in release order, with bucket, class, label and source_sha256 where known. old: the images in the tars of
    `former`. pack: packs rows into tars that begin with the given number in each bucket. why: id → reason of images
    that are no longer among `rows`. purge: write tars with withdrawn images again. The packed rows are in the order
    of the tars; finished tars are not written again. Raises IntegrityError if a tar of `former` does not match its
    checksum.
    """
    stay = {row["id"] for row in rows if row["id"] in old and not changed(row, old[row["id"]].row)}
    now = {row["id"]: row for row in rows}
    buried = [stone for stone in former.tombstones() if stone.tar.startswith(f"{part}/")]
    for id_, place in old.items():
        if id_ not in stay:
            reason = changed(now[id_], place.row) if id_ in now else why.get(id_, "not in this run")
            buried.append(Tombstone(place.tar, id_, version, reason))
    buried = [replace(stone, reason=WITHDRAWN) if why.get(stone.id) == WITHDRAWN else stone for stone in buried]
    gone: dict[str, set[str]] = {}
    for stone in buried:
        if purge and stone.reason == WITHDRAWN:
            gone.setdefault(stone.tar, set()).add(stone.id)
    sums, rewritten, first = {}, [], Counter[int]()
    for name, digest in sorted(former.checksums().items()):
        if not name.startswith(f"{part}/") or not (numbers := NAME.fullmatch(name.removeprefix(f"{part}/"))):
            continue
        first[int(numbers[1])] = max(first[int(numbers[1])], int(numbers[2]) + 1)
        if name not in gone:
            _copy(former.path / name, out / name, digest)
            sums[name] = digest
            continue
        if after := _without(former.path / name, out / name, digest, gone[name]):
            sums[name] = after
        rewritten.append({"tar": name, "before": digest, "after": after, "withdrawn": len(gone[name])})
    new = pack([dict(row) for row in rows if row["id"] not in stay], first)
    packed = [_kept(now[id_], old[id_]) for id_ in stay] + [{**row, "at": (1, row["shard"])} for row in new.rows]
    packed.sort(key=lambda row: (row["bucket"], row["at"]))
    return Appended(
        Packed(
            [{key: value for key, value in row.items() if key != "at"} for row in packed],
            {name.removeprefix(f"{part}/"): digest for name, digest in sums.items()} | new.sums,
        ),
        [stone for stone in buried if stone.id not in gone.get(stone.tar, ())],
        {
            "kept": len(sums) - sum(entry["after"] is not None for entry in rewritten),
            "new": [f"{part}/{name}" for name in new.sums],
            "rewritten": rewritten,
        },
    )


def joined(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What CHANGES says of the tars of several parts."""
    total: dict[str, Any] = {"kept": 0, "new": [], "rewritten": []}
    for part in parts:
        total = {name: total[name] + part[name] for name in total}
    return total


def _kept(row: Row, old: Old) -> dict[str, Any]:
    """The row of an image that stays: as it was, but for what is not published without being asked for."""
    former = {name: old.row[name] for name in METADATA.names if name in old.row and name not in ("user", "url")}
    return {**row, **former, "at": (0, old.tar, old.place)}


def _copy(source: Path, target: Path, digest: str) -> None:
    """Copy a tar, unless it is there. Raises IntegrityError if it does not have this SHA-256."""
    if target.is_file() and sha256_file(target) == digest:
        return
    actual = hashlib.sha256()
    with source.open("rb") as file, writing(target) as copy:
        while block := file.read(1 << 20):
            actual.update(block)
            copy.write(block)
        if actual.hexdigest() != digest:
            raise IntegrityError(f"{source} does not match its checksum.", "", AGAIN)


def _without(source: Path, target: Path, digest: str, ids: set[str]) -> str | None:
    """Write a tar again without the images `ids`; returns its SHA-256, None if nothing is left."""
    if sha256_file(source) != digest:
        raise IntegrityError(f"{source} does not match its checksum.", "", AGAIN)
    members = (member for member in read_tar(source) if id_of(member[0]) not in ids)
    first = next(members, None)
    if first is None:
        return None
    actual = hashlib.sha256()
    write_tar(target, (member for part in ([first], members) for member in part), actual)
    return actual.hexdigest()
