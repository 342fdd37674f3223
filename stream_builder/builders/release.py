"""A release → a stream: each bucket becomes a step."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from curate.core.errors import BadConfig
from curate.release import Release
from stream_builder.lazy_images import Encoded, members
from stream_builder.lazy_images import join as join_images
from stream_builder.stream import Array, Split, Step, Stream, pick


def from_release(release: Release, features: str | None = None, split: str = "split_0") -> Stream:
    """features: a name in the release (default: its first), `pixels:SIZE` for uint8 images of SIZE × SIZE, or
    `images:SIZE` for the same, decoded when they are asked for: the stream then holds links to the release's tars. A
    stream of images has the release's unlabelled ones, too: of buckets before the first labelled one as `prior`.

    Samples of a step are in order of upload time, then id. split: which of the release's seeded splits.
    """
    table = release.table
    if split not in table.column_names:
        raise BadConfig(
            f"The release {release.name} has no split {split!r}.",
            f"Known: {', '.join(release.facts['splits'])}.",
        )
    if features is None and not release.facts["features"]:
        raise BadConfig(f"The release {release.name} ships no features.", "", "Use --features pixels:SIZE.")
    name = features or release.facts["features"][0]
    kind, _, size = name.partition(":")
    if kind in ("pixels", "images") and (not size.isdigit() or not 4 <= int(size) <= 512):
        raise BadConfig(f"The features are {name!r}.", f"Expected {kind}:SIZE with SIZE from 4 to 512.")
    x: Any = (
        _pixels(release, int(size))
        if kind == "pixels"
        else encoded(release, int(size))
        if kind == "images"
        else np.asarray(release.features(name), np.float32)
    )
    label = table["label"].to_numpy().astype(np.int64)
    when = table["uploaded"].to_numpy().astype(np.int64)
    ids = np.array(table["id"].to_pylist(), dtype=np.str_)
    bucket = table["bucket"].to_numpy()
    sides = np.array(table[split].to_pylist())
    bare = unlabelled(release, int(size), kind == "pixels") if kind in ("pixels", "images") else {}
    first = min(about["index"] for about in release.buckets)
    before = [x for number, x in sorted(bare.items()) if number < first]
    steps = []
    for index, about in enumerate(release.buckets):
        splits = {}
        for side in ("train", "test"):
            here = np.flatnonzero((bucket == about["index"]) & (sides == side))
            here = here[np.lexsort((ids[here], when[here]))]
            if len(here):
                splits[side] = Split(pick(x, here), label[here], ids[here], when[here])
        steps.append(Step(index, str(about["name"]), splits, bare.get(about["index"])))
    facts = {
        "from": "release",
        "release": release.name,
        "version": release.facts["version"],
        "features": name,
        "split": split,
    }
    prior = None if not before else join_images(before) if kind == "images" else np.concatenate(before)
    return Stream(release.name, steps, release.classes, prior, facts=facts)


def unlabelled(release: Release, size: int, decode: bool) -> dict[int, Any]:
    """Bucket → its unlabelled images, where the release ships any."""
    found = {}
    tars = sorted((release.path / "unlabelled").glob("bucket_*.tar"))
    for bucket in sorted({_bucket(tar) for tar in tars}):
        mine = [tar for tar in tars if _bucket(tar) == bucket]
        rows = [
            (number, offset, length)
            for number, tar in enumerate(mine)
            for name, offset, length in members(tar)
            if not name.endswith((".json", ".cls"))
        ]
        images = Encoded(tuple(mine), np.array(rows, np.int64).reshape(-1, 3), size)
        found[bucket] = images[:] if decode else images
    return found


def _bucket(tar: Path) -> int:
    """Of a tar `bucket_BB-NNNNN.tar`."""
    return int(tar.name.removeprefix("bucket_").partition("-")[0])


def encoded(release: Release, size: int) -> Encoded:
    """The release's images in the order of its table, to be decoded later."""
    tars = sorted(set(release.table["shard"].to_pylist()))
    place = {
        (number, name): (number, offset, length)
        for number, tar in enumerate(tars)
        for name, offset, length in members(release.path / "shards" / tar)
    }
    number = {tar: i for i, tar in enumerate(tars)}
    rows = [
        place[number[shard], member]
        for shard, member in zip(release.table["shard"].to_pylist(), release.table["member"].to_pylist(), strict=True)
    ]
    return Encoded(tuple(release.path / "shards" / t for t in tars), np.array(rows, np.int64).reshape(-1, 3), size)


def _pixels(release: Release, size: int) -> Array:
    """Images as uint8 (N, SIZE, SIZE, 3): shorter edge to SIZE, centre crop."""
    from PIL import Image, ImageOps

    found = {}
    for id_, data in release.images():
        with Image.open(io.BytesIO(data)) as image:
            found[id_] = np.asarray(ImageOps.fit(image.convert("RGB"), (size, size), Image.Resampling.BICUBIC))
    return np.stack([found[i] for i in release.table["id"].to_pylist()])
