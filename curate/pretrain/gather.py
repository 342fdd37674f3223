"""A bucket's images, labelled or not, as one array: from a run, a release or a folder."""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from curate.core.atomic_io import read_json, sha256_file, write_json, writing
from curate.core.errors import BadConfig, IntegrityError, MissingFile
from curate.images.checks import ImageLimits, check_image
from curate.images.shards import read_images, read_tar

RULES = ImageLimits()
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")


@dataclass(frozen=True)
class Pictures:
    """x: (N, room, room, 3) uint8, memory-mapped. dropped: reason → how many images were left out. sha256: of x."""

    x: npt.NDArray[np.uint8]
    dropped: Mapping[str, int]
    sha256: str


def gather(source: Path, bucket: int, room: int, out: Path, tick: Callable[[int], None] = lambda n: None) -> Pictures:
    """Images of `bucket`, shorter edge to `room` pixels, the centre cut out, kept in `out`: images.u8, images.json.
    What is there already is not decoded again. Copies of an image are taken once.

    source: a run folder whose bucket stage is done, a release, or any other folder: all its pictures then, whatever
    `bucket` says. Raises MissingFile, BadConfig for a bucket that is not there.
    """
    about = {"source": str(source.resolve()), "bucket": bucket, "room": room}
    kept = out / "images.json"
    if not kept.is_file() or {k: read_json(kept).get(k) for k in about} != about:
        kept.unlink(missing_ok=True)
        told = _decode(_encoded(source, bucket), room, out / "images.u8", tick)
        write_json(kept, about | told)
    told = read_json(kept)
    x: Any = np.zeros((0, room, room, 3), np.uint8)
    if told["n"]:
        x = np.memmap(out / "images.u8", np.uint8, "r", shape=(told["n"], room, room, 3))
    return Pictures(x, told["dropped"], told["sha256"])


def _decode(images: Iterable[bytes], room: int, path: Path, tick: Callable[[int], None]) -> dict[str, Any]:
    seen: set[bytes] = set()
    dropped: Counter[str] = Counter()
    digest = hashlib.sha256()
    with writing(path) as file:
        for data in images:
            tick(1)
            mark = hashlib.sha256(data).digest()
            fault = "copy" if mark in seen else check_image(data, RULES).reason
            if fault is not None:
                dropped[fault] += 1
                continue
            seen.add(mark)
            pixels = fitted(data, room).tobytes()
            digest.update(pixels)
            file.write(pixels)
    return {"n": len(seen), "dropped": dict(sorted(dropped.items())), "sha256": digest.hexdigest()}


def fitted(data: bytes, room: int) -> npt.NDArray[np.uint8]:
    """(room, room, 3)."""
    from PIL import Image, ImageOps

    with Image.open(io.BytesIO(data)) as image:
        image.draft("RGB", (room, room))
        return np.asarray(ImageOps.fit(image.convert("RGB"), (room, room), Image.Resampling.BICUBIC))


def _encoded(source: Path, bucket: int) -> Iterable[bytes]:
    if not source.is_dir():
        raise MissingFile(f"There is no folder {source}.", "Expected a run, a release, a stream or a folder of images.")
    members = sorted(source.glob("stages/*_bucket/members.parquet"))
    if members:
        return _of_run(source, members[-1], bucket)
    if (source / "release.json").is_file():
        return _of_release(source, bucket)
    files = sorted(p for p in source.rglob("*") if p.suffix.lower() in SUFFIXES)
    if not files:
        raise MissingFile(f"{source} holds no images.", f"Expected files that end in {', '.join(SUFFIXES)}.")
    return (file.read_bytes() for file in files)


def _of_run(source: Path, members: Path, bucket: int) -> Iterator[bytes]:
    """All that was fetched and fell into the bucket."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.read_table(members)
    mine = table.filter(pc.equal(table["bucket"], bucket))
    _known(bucket, set(pc.unique(table["bucket"]).to_pylist()), len(mine))
    folder: Any = next(iter(sorted(source.glob("stages/*_fetch"))), None)
    if folder is None:
        raise MissingFile(f"{source} has no fetch stage.", "", "Run driftline run again.")
    for shard in sorted(set(mine["shard"].to_pylist())):
        rows = mine.filter(pc.equal(mine["shard"], shard))
        yield from (data for _, data in read_images(folder, rows, shard))


def _of_release(source: Path, bucket: int) -> Iterator[bytes]:
    """Unlabelled images of the bucket, and labelled ones outside the first split's test; labels are not looked at."""
    from curate.release.format import Release

    release = Release.open(source)
    tars = sorted((release.path / "unlabelled").glob(f"bucket_{bucket:02d}-*.tar"))
    _known(bucket, set(release.table["bucket"].to_pylist()), len(tars))
    lines = [line.partition("  ") for line in (release.path / "SHA256SUMS").read_text().splitlines()]
    sums = {name: digest for digest, _, name in lines}
    for tar in tars:
        if sums.get(f"unlabelled/{tar.name}") != sha256_file(tar):
            raise IntegrityError(f"{tar} does not match its checksum.", "", "Copy the release again.")
        yield from (data for name, data in read_tar(tar) if not name.endswith((".json", ".cls")))
    table = release.table
    tested = {
        i for i, side in zip(table["id"].to_pylist(), table["split_0"].to_pylist(), strict=True) if side == "test"
    }
    yield from (data for id_, data in release.images(bucket) if id_ not in tested)


def _known(bucket: int, known: set[int], found: int) -> None:
    if not found and bucket not in known:
        raise BadConfig(f"There is no image of bucket {bucket}.", f"Buckets: {sorted(known)}.", "Set --bucket.")
