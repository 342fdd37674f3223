"""Photos of a run, a release or a folder that a model may learn from: the tests of every split are left out.

`gather` makes one array of them: decoded once, equally large, without copies.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import fingerprint, read_json, sha256_file, write_json, writing
from driftline.curate.core.errors import BadConfig, IntegrityError, MissingFile
from driftline.curate.core.parsing import rows_of
from driftline.curate.encoders.weights import NOBODY, UNKNOWN, Seen
from driftline.curate.foreign.images import IMAGE_SUFFIXES, open_image, square
from driftline.curate.foreign.tables import read_parquet
from driftline.curate.images.checks import ImageLimits, check_image
from driftline.curate.images.near_duplicates import Hashes, hashes_of
from driftline.curate.images.shards import read_images, read_tar
from driftline.curate.metadata.released_ids import mapped, released_ids
from driftline.curate.release.format import AGAIN, Release, in_run
from driftline.curate.release.unlabelled import COPY, Tested, left_out

Read = Callable[[Collection[str]], Iterator[tuple[str, bytes]]]


class Photo(NamedTuple):
    """What is known of a photo without its pixels."""

    id: str
    user: str | None
    sha256: str
    """of its file"""
    uploaded: int | None
    """seconds since 1970, UTC"""


@dataclass(frozen=True)
class Pool:
    """Photos to learn from."""

    photos: Mapping[str, Photo]
    """id → photo, of those that are not left out by id, uploader or bytes"""
    read: Read
    """ids → (id, bytes) of these"""
    dropped: Counter[str]
    """reason → photos that were left out; `images` adds those that it leaves out"""
    tests: str
    """"left out", "included" (the caller asked for them), "unknown" (no release says which they are)"""
    compared: tuple[Release, Tested] | None = field(default=None, repr=False)
    """the release whose tests are left out, if photos must be compared with the pixels of its tests"""

    @property
    def key(self) -> str:
        """Digest of the photos, and of the tests with which they are compared."""
        tests = [] if self.compared is None else [sorted(self.compared[1].digests), self.compared[1].bits]
        return fingerprint([sorted((p.id, p.sha256) for p in self.photos.values()), self.tests, tests])

    @cached_property
    def _hashes(self) -> Hashes:
        """Perceptual hashes of the tests."""
        if self.compared is None:
            return hashes_of([])
        release, tests = self.compared
        return hashes_of(data for _, data in release.images(ids=tests.ids))

    def images(
        self, room: int, ids: Collection[str] | None = None, tick: Callable[[int], None] = lambda n: None
    ) -> Iterator[tuple[Photo, npt.NDArray[np.uint8]]]:
        """The photos with their pixels (room, room, 3); ids: of these only. Broken files, exact copies and
        near-duplicates of tests are left out and counted."""
        wanted, seen = self.photos.keys() if ids is None else self.photos.keys() & ids, set[bytes]()
        for id_, data in self.read(wanted):
            tick(1)
            checksum = hashlib.sha256(data).digest()
            reason = "copy" if checksum in seen else check_image(data, ImageLimits()).reason
            if reason is None and self.compared is not None:
                bits = np.bitwise_count(self._hashes ^ hashes_of([data])[0]).min(initial=64)
                reason = COPY if bits <= self.compared[1].bits else None
            if reason is not None:
                self.dropped[reason] += 1
                continue
            seen.add(checksum)
            yield self.photos[id_], fit_image(data, room)


def open_pool(source: Path, bucket: int | None, include_tests: bool = False) -> Pool:
    """The photos of `source`: a run whose fetch is done (a bucket: whose bucket stage is done), a release, or another
    folder, of which all images are used.

    bucket: None for all. Left out is what at least one split of the
    release tests (of a run: of the release that it published), photos by the uploaders of tests, and near-duplicates.
    Raises MissingFile, and BadConfig for a bucket that does not exist.
    """
    if not source.is_dir():
        raise MissingFile(f"There is no folder {source}.", "Expected a run, a release or a folder of images.")
    release = Release.open(source) if is_release(source) or in_run(source, "publish/release") else None
    if is_release(source):
        assert release is not None
        photos, read = _of_release(release, bucket)
    elif index := in_run(source, "fetch/index.parquet" if bucket is None else "bucket/members.parquet"):
        photos, read = _of_run(source, index, bucket)
    else:
        photos, read = _of_folder(source)
    every = {photo.id: photo for photo in photos}
    if release is None or include_tests:
        return Pool(every, read, Counter(), "included" if include_tests else "unknown")
    own = {} if is_release(source) else {name: id_ for id_, name in released_ids(source).items()}
    tests = Tested.of_release(release)
    ids = frozenset(mapped(tests.ids, own))
    users = _users(source)  # a release may not say them
    uploaders = tests.users.union(user for id_ in ids if (user := users.get(id_)))
    without = left_out(replace(tests, ids=ids, users=uploaders), (photo[:3] for photo in photos))
    left = {id_: photo for id_, photo in every.items() if id_ not in without}
    # near copies in a release are on one side already
    alike = set(left) <= set(mapped(release.table["id"].to_pylist(), own))
    return Pool(left, read, Counter(without.values()), "left out", None if alike else (release, tests))


@dataclass(frozen=True)
class ImageArray:
    """Images of equal size."""

    x: npt.NDArray[np.uint8]
    """(N, room, room, 3), memory-mapped"""
    dropped: Mapping[str, int]
    """reason → number of photos that were left out"""
    sha256: str
    """of x"""
    seen: Seen = NOBODY
    """what a model that learns from them has seen"""
    tests: str = "unknown"
    """"left out" (those of every split), "included" or "unknown\""""


def gather(
    source: Path,
    bucket: int,
    room: int,
    out: Path,
    tick: Callable[[int], None] = lambda n: None,
    include_tests: bool = False,
) -> ImageArray:
    """The images of `bucket`, resized and centre-cropped to `room` pixels, stored in `out`: images.u8, images.json.

    source, include_tests: as of `open_pool`. Exact copies of an image are dropped. Nothing is decoded again if the
    photos, their bytes and the tests are those of an earlier call. Raises MissingFile, BadConfig for a bucket that does
    not exist.
    """
    pool = open_pool(source, bucket, include_tests)
    request = {"pool": pool.key, "room": room}
    path = out / "images.json"
    if not path.is_file() or {k: read_json(path).get(k) for k in request} != request:
        path.unlink(missing_ok=True)
        used: list[Photo] = []
        digest = hashlib.sha256()
        with writing(out / "images.u8") as file:
            for photo, pixels in pool.images(room, tick=tick):
                used.append(photo)
                digest.update(pixels.tobytes())
                file.write(pixels.tobytes())
        facts = {"n": len(used), "dropped": dict(sorted(pool.dropped.items())), "sha256": digest.hexdigest()}
        write_json(path, request | facts | {"seen": asdict(seen_of(used, source, pool.tests))})
    stored = read_json(path)
    x: Any = np.zeros((0, room, room, 3), np.uint8)
    if stored["n"]:
        x = np.memmap(out / "images.u8", np.uint8, "r", shape=(stored["n"], room, room, 3))
    return ImageArray(x, stored["dropped"], stored["sha256"], Seen(**stored["seen"]), pool.tests)


def is_release(source: Path) -> bool:
    """Whether the folder itself is a release."""
    return (source / "release.json").is_file()


def seen_of(photos: Iterable[Photo], source: Path, tests: str) -> Seen:
    """What a model that learned from these photos has seen, for `training_data.yaml`."""
    photos = list(photos)
    times = [photo.uploaded for photo in photos]
    dates = [time for time in times if time is not None]
    until = str(datetime.fromtimestamp(max(dates), UTC).date()) if dates and len(dates) == len(times) else UNKNOWN
    origin = f"{len(photos):,} photos of {source.resolve().name}; tests of its release: {tests}"
    return Seen(until, origin, "driftline models train")


def tests_note(source: Path, tests: str, dropped: Mapping[str, int]) -> str:
    """What is said before a training of whether tests are among its photos."""
    if tests == "unknown":
        return f"{source} names no test images: the model may learn from photos that a later release tests."
    if tests == "included":
        return "The model learns from test images, too (--include-tests): do not test it on them."
    counts = ", ".join(f"{n:,} {reason}" for reason, n in sorted(dropped.items()) if n)
    return f"Left out: {counts or 'nothing'}."


def _of_run(source: Path, index: Path, bucket: int | None) -> tuple[list[Photo], Read]:
    """All fetched images (of the bucket)."""
    table = pq.read_table(index)
    if bucket is not None:
        buckets = set(pc.unique(table["bucket"]).to_pylist())
        table = table.filter(pc.equal(table["bucket"], bucket))
        _check_bucket(bucket, buckets, len(table))
    table = table.filter(pc.is_valid(table["sha256"]))
    folder = next(iter(sorted(source.glob("stages/*_fetch"))), None)
    if folder is None:
        raise MissingFile(f"{source} has no fetch stage.", "", "Run driftline run again.")
    users = _users(source)
    rows = rows_of(table, "id", "sha256", "uploaded")
    photos = [Photo(id_, users.get(id_), digest, uploaded) for id_, digest, uploaded in rows]

    def read(ids: Collection[str]) -> Iterator[tuple[str, bytes]]:
        wanted = table.filter(pc.is_in(table["id"], value_set=pa.array(list(ids), pa.string())))
        for shard in sorted(set(wanted["shard"].to_pylist())):
            yield from read_images(folder, wanted.filter(pc.equal(wanted["shard"], shard)), shard)

    return photos, read


def _users(run: Path) -> dict[str, str | None]:
    """id → uploader, of all records of a run; empty for other folders."""
    parts = sorted(run.glob("stages/*_ingest/table/*.parquet"))
    return dict(rows_of(pq.read_table(parts, columns=["id", "user"]), "id", "user")) if parts else {}


def _of_release(release: Release, bucket: int | None) -> tuple[list[Photo], Read]:
    """The unlabelled images (of the bucket), then the labelled ones."""
    columns, index = ("id", "user", "sha256", "uploaded", "bucket"), release.path / "unlabelled.parquet"
    listed = rows_of(read_parquet(index), *columns) if index.is_file() else ()
    photos = [Photo(*values) for *values, b in listed if values[2] and (bucket is None or b == bucket)]  # held in tars
    without_label = {photo.id for photo in photos}
    photos += [Photo(*values) for *values, b in rows_of(release.table, *columns) if bucket is None or b == bucket]
    _check_bucket(bucket, {record["index"] for record in release.buckets}, len(photos))
    sums = release.checksums()

    def read(ids: Collection[str]) -> Iterator[tuple[str, bytes]]:
        tars = [name for name in sorted(sums) if name.startswith("unlabelled/")] if without_label & set(ids) else []
        for name in tars:
            if bucket is not None and not name.startswith(f"unlabelled/bucket_{bucket:02d}-"):
                continue
            if sums[name] != sha256_file(release.path / name):
                raise IntegrityError(f"{release.path / name} does not match its checksum.", "", AGAIN)
            for member, data in read_tar(release.path / name):
                id_ = member.partition(".")[0]
                if id_ in without_label and id_ in ids and not member.endswith((".json", ".cls")):
                    yield id_, data
        yield from release.images(bucket, ids)

    return photos, read


def _of_folder(source: Path) -> tuple[list[Photo], Read]:
    files = {
        p.relative_to(source).as_posix(): p for p in sorted(source.rglob("*")) if p.suffix.lower() in IMAGE_SUFFIXES
    }
    if not files:
        raise MissingFile(f"{source} holds no images.", f"Expected files that end in {', '.join(IMAGE_SUFFIXES)}.")
    photos = [Photo(name, None, sha256_file(path), None) for name, path in files.items()]
    return photos, lambda ids: ((name, path.read_bytes()) for name, path in files.items() if name in ids)


def _check_bucket(bucket: int | None, buckets: set[int], images: int) -> None:
    if bucket is not None and not images and bucket not in buckets:
        raise BadConfig(f"There is no image of bucket {bucket}.", f"Available: {sorted(buckets)}.", "Set --bucket.")


def fit_image(data: bytes, room: int) -> npt.NDArray[np.uint8]:
    """Decode an image, resize its shorter edge and crop the centre: (room, room, 3)."""
    with open_image(data, "An image") as image:
        image.draft("RGB", (room, room))
        return square(image, room)
