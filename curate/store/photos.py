"""Photos in a store: by address what a server gave and when, by SHA-256 where the bytes are; and their vectors and
perceptual hashes, by the fingerprint of the encoder."""

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.atomic_io import sha256_bytes
from driftline.curate.core.parsing import rows_of
from driftline.curate.foreign.http import one_address
from driftline.curate.images.changes import NONE
from driftline.curate.images.shards import member_starts
from driftline.curate.store import NETWORK_REASONS
from driftline.curate.store.database import Store


@dataclass(frozen=True)
class Outcome:
    """What an address gave, in the order of SELECT."""

    rules: bytes
    """fingerprint of the settings that judged it"""
    time: int = 0
    """when it was asked, seconds since 1970; 0: now"""
    fault: str | None = None
    """why there is no image; None: there is one"""
    detail: str | None = None
    """more about it, for people"""
    sha256: str | None = None
    """of the stored image"""
    suffix: str = ""
    """of its file, without a dot"""
    width: int = 0
    """pixels"""
    height: int = 0
    """pixels"""
    source_sha256: str | None = None
    """of the bytes as fetched; None: of a miss"""
    changes: str = NONE
    """what was done to them"""


Asked = Sequence[tuple[str, Outcome]]
"""addresses that were asked, and what each gave; an image is in a shard of the store already"""


def address_key(url: str) -> bytes:
    """16 bytes for an address in one form."""
    return hashlib.sha256((one_address(url) or url).encode("utf-8", "surrogatepass")).digest()[:16]


SELECT = """SELECT a.rules, a.time, a.fault, a.detail, nullif(lower(hex(i.sha)), ''), coalesce(i.suffix, ''),
    coalesce(i.width, 0), coalesce(i.height, 0), nullif(lower(hex(a.source)), ''), a.changes
    FROM attempts a LEFT JOIN images i ON i.number = a.image WHERE a.address = ? ORDER BY """


def outcomes(store: Store, urls: Iterable[str]) -> dict[str, Outcome]:
    """The last answer of each address that was asked before; the last attempt if it never answered."""
    last = f"COALESCE(a.fault, '') IN ({', '.join('?' * len(NETWORK_REASONS))}), a.number DESC LIMIT 1"
    latest = {}
    for url in urls:
        row = store.base.execute(SELECT + last, (address_key(url), *NETWORK_REASONS)).fetchone()
        if row is not None:
            latest[url] = Outcome(*row)
    return latest


def history(store: Store, url: str) -> list[Outcome]:
    """Every attempt to get an address, the first one first."""
    return [Outcome(*row) for row in store.base.execute(SELECT + "a.number", (address_key(url),))]


def images_of(store: Store, digests: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """(sha256, bytes) of the images that are here and sound; every checksum is verified, and what fails is left out."""
    places = []
    for digest in dict.fromkeys(digests):
        row = store.base.execute(
            "SELECT f.name, i.start, i.size FROM images i JOIN files f ON f.number = i.file WHERE i.sha = ?",
            (bytes.fromhex(digest),),
        ).fetchone()
        if row is not None:
            places.append((*row, digest))
    for name, inside in groupby(sorted(places), itemgetter(0)):
        if not store.file(name).is_file():
            continue
        with store.file(name).open("rb") as file:
            for _, start, size, digest in inside:
                file.seek(start)
                data = file.read(size)
                if sha256_bytes(data) == digest:
                    yield digest, data


def keep_shard(store: Store, tar: Path, tar_sha256: str, index: Any, asked: Asked) -> None:
    """Take a complete tar with the images of `index` (columns member, sha256, bytes, width, height), and what was asked
    for it. A later copy of an image replaces the place of an earlier one."""
    members = [row for row in rows_of(index, "member", "sha256", "bytes", "width", "height") if row[0] is not None]
    name = store.link(tar, tar_sha256) if members else ""
    with store.transaction() as base:
        number = store.number_of(name) if members else 0
        starts = member_starts(size for _, _, size, *_ in members)
        base.executemany(
            "INSERT INTO images (sha, file, start, size, suffix, width, height) VALUES (?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (sha) DO UPDATE SET file = excluded.file, start = excluded.start",
            [
                (bytes.fromhex(sha), number, start, size, member.rpartition(".")[2], width, height)
                for start, (member, sha, size, width, height) in zip(starts, members, strict=True)
            ],
        )
        _keep_attempts(store, asked)


def keep_misses(store: Store, asked: Asked) -> None:
    """Take misses that were found again, or that turned out to last."""
    with store.transaction():
        _keep_attempts(store, asked)


def _keep_attempts(store: Store, asked: Asked) -> None:
    """Append to the history of each address: its number orders it, not the clock, which may be set back."""
    now = int(time.time())
    store.base.executemany(
        "INSERT INTO attempts VALUES (?1, (SELECT COALESCE(MAX(number), 0) + 1 FROM attempts WHERE address = ?1), "
        "?2, ?3, (SELECT number FROM images WHERE sha = ?4), ?5, ?6, ?7, ?8)",
        [
            (
                address_key(url), now, one.rules, one.sha256 and bytes.fromhex(one.sha256), one.fault, one.detail,
                one.source_sha256 and bytes.fromhex(one.source_sha256), one.changes,
            )
            for url, one in asked
        ],
    )  # fmt: skip


@dataclass(frozen=True)
class Look:
    """What an encoder made of an image."""

    fault: str | None
    """why it cannot be used; None: it has a vector"""
    phash: int | None
    """perceptual hash"""
    file: str = ""
    """name of the file with its vector"""
    row: int = 0
    """row of its vector in the file"""


def looks(store: Store, encoder: str, digests: Sequence[str]) -> dict[str, Look]:
    """SHA-256 → what is known of these images; vector files are verified, and what fails is left out."""
    stored: dict[str, Look] = {}
    sound: dict[str, bool] = {}
    query = (
        "SELECT i.unusable, i.phash, f.name AS 'name?', v.row AS 'row?' FROM images i "
        "LEFT JOIN vectors v ON v.image = i.number AND "
        "v.encoder = (SELECT number FROM encoders WHERE name = ?) "
        "LEFT JOIN files f ON f.number = v.file WHERE i.sha = ?"
    )
    for digest in dict.fromkeys(digests):
        row = store.base.execute(query, (encoder, bytes.fromhex(digest))).fetchone()
        if row is None:
            continue
        fault, phash, name, position = row
        if fault is not None:
            stored[digest] = Look(fault, None)
        elif phash is not None and name is not None:
            if name not in sound:
                sound[name] = store.is_sound(name)
            if sound[name]:
                stored[digest] = Look(None, phash % (1 << 64), name, position)
    return stored


def read_vectors(store: Store, wanted: Sequence[Look]) -> list[npt.NDArray[np.float16]]:
    """The vectors (D,) of looks without a fault, in order."""
    arrays = {name: np.load(store.file(name), mmap_mode="r") for name in {look.file for look in wanted}}
    return [np.array(arrays[look.file][look.row], np.float16) for look in wanted]


def keep_vectors(
    store: Store, encoder: str, npy: Path, digests: Sequence[str], judged: Sequence[tuple[str | None, int | None]] = ()
) -> None:
    """Take a complete file of the vectors of images (SHA-256), in order. judged: of each its fault and its perceptual
    hash; an image with a fault has no vector."""
    name = store.link(npy)
    good = [sha for sha, (fault, _) in zip(digests, judged, strict=True) if fault is None] if judged else digests
    with store.transaction() as base:
        base.executemany(
            "UPDATE images SET phash = ?, unusable = ? WHERE sha = ?",
            [
                (None if phash is None else phash - (phash >> 63 << 64), fault, bytes.fromhex(sha))
                for sha, (fault, phash) in zip(digests, judged, strict=False)
            ],
        )
        base.execute("INSERT OR IGNORE INTO encoders (name) VALUES (?)", (encoder,))
        (number,) = base.execute("SELECT number FROM encoders WHERE name = ?", (encoder,)).fetchone()
        file = store.number_of(name)
        base.executemany(
            "INSERT OR REPLACE INTO vectors SELECT ?, number, ?, ? FROM images WHERE sha = ?",
            [(number, file, row, bytes.fromhex(sha)) for row, sha in enumerate(good)],
        )
