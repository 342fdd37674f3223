"""The images of a bucket, labelled or not, as one array: from a run, a release or a folder."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from curate.core.atomic_io import read_json, sha256_file, write_json, writing
from curate.core.errors import BadConfig, IntegrityError, MissingFile
from curate.core.outside.images import opened
from curate.core.parsing import rows_of
from curate.images.checks import ImageLimits, check_image
from curate.images.shards import read_images, read_tar

LIMITS = ImageLimits()
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")


@dataclass(frozen=True)
class ImageArray:
    """Images of equal size."""

    x: npt.NDArray[np.uint8]
    """(N, room, room, 3), memory-mapped"""
    dropped: Mapping[str, int]
    """reason → number of dropped images"""
    sha256: str
    """of x"""


def gather(source: Path, bucket: int, room: int, out: Path, tick: Callable[[int], None] = lambda n: None) -> ImageArray:
    """The images of `bucket`, resized and centre-cropped to `room` pixels, stored in `out`: images.u8, images.json.

    source: a run folder whose bucket stage is done, a release, or any other folder, of which all images are used.
    Exact copies of an image are dropped. Images of an earlier call are not decoded again. Raises MissingFile, BadConfig
    for a bucket that does not exist.
    """
    request = {"source": str(source.resolve()), "bucket": bucket, "room": room}
    path = out / "images.json"
    if not path.is_file() or {k: read_json(path).get(k) for k in request} != request:
        path.unlink(missing_ok=True)
        write_json(path, request | _decode(_encoded(source, bucket), room, out / "images.u8", tick))
    stored = read_json(path)
    x: Any = np.zeros((0, room, room, 3), np.uint8)
    if stored["n"]:
        x = np.memmap(out / "images.u8", np.uint8, "r", shape=(stored["n"], room, room, 3))
    return ImageArray(x, stored["dropped"], stored["sha256"])


def _decode(images: Iterable[bytes], room: int, path: Path, tick: Callable[[int], None]) -> dict[str, Any]:
    seen: set[bytes] = set()
    dropped: Counter[str] = Counter()
    digest = hashlib.sha256()
    with writing(path) as file:
        for data in images:
            tick(1)
            checksum = hashlib.sha256(data).digest()
            reason = "copy" if checksum in seen else check_image(data, LIMITS).reason
            if reason is not None:
                dropped[reason] += 1
                continue
            seen.add(checksum)
            pixels = fit_image(data, room).tobytes()
            digest.update(pixels)
            file.write(pixels)
    return {"n": len(seen), "dropped": dict(sorted(dropped.items())), "sha256": digest.hexdigest()}


def fit_image(data: bytes, room: int) -> npt.NDArray[np.uint8]:
    """Decode an image, resize its shorter edge and crop the centre: (room, room, 3)."""
    from PIL import Image, ImageOps

    with opened(data, "An image") as image:
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
    """All fetched images of the bucket."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.read_table(members)
    members_of = table.filter(pc.equal(table["bucket"], bucket))
    _check_bucket(bucket, set(pc.unique(table["bucket"]).to_pylist()), len(members_of))
    folder: Any = next(iter(sorted(source.glob("stages/*_fetch"))), None)
    if folder is None:
        raise MissingFile(f"{source} has no fetch stage.", "", "Run driftline run again.")
    for shard in sorted(set(members_of["shard"].to_pylist())):
        rows = members_of.filter(pc.equal(members_of["shard"], shard))
        yield from (data for _, data in read_images(folder, rows, shard))


def _of_release(source: Path, bucket: int) -> Iterator[bytes]:
    """The unlabelled images of the bucket, and the labelled ones that are not test images of the first split."""
    from curate.release.format import Release

    release = Release.open(source)
    tars = sorted((release.path / "unlabelled").glob(f"bucket_{bucket:02d}-*.tar"))
    _check_bucket(bucket, set(release.table["bucket"].to_pylist()), len(tars))
    sums = release.checksums()
    for tar in tars:
        if sums.get(f"unlabelled/{tar.name}") != sha256_file(tar):
            raise IntegrityError(f"{tar} does not match its checksum.", "", "Copy the release again.")
        dead = release.dead(f"unlabelled/{tar.name}")
        images = ((name, data) for name, data in read_tar(tar) if not name.endswith((".json", ".cls")))
        yield from (data for name, data in images if name.partition(".")[0] not in dead)
    tested = {id_ for id_, side in rows_of(release.table, "id", "split_0") if side == "test"}
    yield from (data for id_, data in release.images(bucket) if id_ not in tested)


def _check_bucket(bucket: int, known: set[int], images: int) -> None:
    if not images and bucket not in known:
        raise BadConfig(f"There is no image of bucket {bucket}.", f"Available: {sorted(known)}.", "Set --bucket.")
