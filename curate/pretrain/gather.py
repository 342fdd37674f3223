"""Photos to learn from as one array: decoded once, equally large, without copies and without tests."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.atomic_io import read_json, write_json, writing
from driftline.curate.encoders.seen import NOBODY, Seen
from driftline.curate.pretrain.pool import Photo, Pool, open_pool, seen_of


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
        write_json(path, request | _decode(pool, room, out / "images.u8", tick, source))
    stored = read_json(path)
    x: Any = np.zeros((0, room, room, 3), np.uint8)
    if stored["n"]:
        x = np.memmap(out / "images.u8", np.uint8, "r", shape=(stored["n"], room, room, 3))
    return ImageArray(x, stored["dropped"], stored["sha256"], Seen(**stored["seen"]), pool.tests)


def _decode(pool: Pool, room: int, path: Path, tick: Callable[[int], None], source: Path) -> dict[str, Any]:
    used: list[Photo] = []
    digest = hashlib.sha256()
    with writing(path) as file:
        for photo, pixels in pool.images(room, tick=tick):
            used.append(photo)
            data = pixels.tobytes()
            digest.update(data)
            file.write(data)
    return {
        "n": len(used),
        "dropped": dict(sorted(pool.dropped.items())),
        "sha256": digest.hexdigest(),
        "seen": asdict(seen_of(used, source, pool.tests)),
    }
