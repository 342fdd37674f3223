"""A release in a notebook: images of each class and bucket, counted, with examples."""

from __future__ import annotations

import tarfile
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from driftline.curate.core.notebook import Thumbnail, table
from driftline.curate.core.parsing import rows_of
from driftline.curate.release.format import Release

MAX_CLASSES, MAX_BUCKETS = 30, 12  # rows and columns
MAX_SHOWN = 6  # classes and buckets with an example


def html(release: Release) -> str:
    """One row a class, one column a bucket. Examples come from the first shard of a bucket: bounded work."""
    buckets, names = release.buckets[:MAX_BUCKETS], release.classes[:MAX_CLASSES]
    counts: Counter[tuple[str, int]] = Counter()
    first: dict[tuple[str, int], tuple[str, str]] = {}
    for name, bucket, shard, member in rows_of(release.table, "class", "bucket", "shard", "member"):
        counts[name, bucket] += 1
        first.setdefault((name, bucket), (shard, member))
    images: dict[tuple[str, str], bytes] = {}
    for b in buckets[:MAX_SHOWN]:
        images |= _members(release, [first[key] for n in names[:MAX_SHOWN] if (key := (n, b["index"])) in first])

    def cell(name: str, bucket: dict[str, Any]) -> Thumbnail | int:
        key = (name, bucket["index"])
        data = images.get(first.get(key, ("", "")))
        return counts[key] if data is None else Thumbnail(data, f"{name}, {bucket['name']}", f"{counts[key]:,}")

    rows: list[list[object]] = [[name, *(cell(name, b) for b in buckets)] for name in names]
    if hidden := len(release.classes) - len(names):
        rows.append([f"and {hidden} more classes"])
    size = f"{len(release.table):,} images of {len(release.classes)} classes in {len(release.buckets)} buckets"
    return table(f"{release.name} {release.facts['version']}: {size}", ["class", *map(_head, buckets)], rows)


def _head(bucket: Mapping[str, Any]) -> str:
    """The bucket's name, with its first month where that is a number only."""
    numbered = bucket["name"] == str(bucket["index"]) and bucket.get("start")
    return f"{bucket['name']}: {bucket['start'][:7]}" if numbered else str(bucket["name"])


def _members(release: Release, wanted: list[tuple[str, str]]) -> dict[tuple[str, str], bytes]:
    """(shard, member) → bytes, of one shard; of other members only the headers are read. A shard that cannot be read
    gives none: `verify` is the place for errors."""
    contents: dict[tuple[str, str], bytes] = {}
    shard = min(wanted, default=("", ""))[0]
    left = {member for name, member in wanted if name == shard}
    with suppress(OSError, tarfile.TarError), tarfile.open(release.path / "shards" / shard) as tar:
        for info in tar:
            if not left:
                break
            if info.name in left and (file := tar.extractfile(info)) is not None:
                left.remove(info.name)
                contents[shard, info.name] = file.read()
    return contents
