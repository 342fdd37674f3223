"""Vectors and perceptual hashes in a store, by the SHA-256 of an image and the fingerprint of the encoder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from driftline.curate.store.database import Store


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


def keep_vectors(store: Store, encoder: str, npy: Path, new: Mapping[str, Look]) -> None:
    """Take a complete file of vectors. new: SHA-256 → its look, with the row in this file."""
    with store.transaction() as base:
        base.executemany(
            "UPDATE images SET phash = ?, unusable = ? WHERE sha = ?",
            [
                (
                    None if look.phash is None else look.phash - ((look.phash >> 63) << 64),
                    look.fault,
                    bytes.fromhex(sha),
                )
                for sha, look in new.items()
            ],
        )
    keep_rows(store, encoder, npy, {sha: look.row for sha, look in new.items() if look.fault is None})


def keep_rows(store: Store, encoder: str, npy: Path, rows: Mapping[str, int]) -> None:
    """Take a complete file of vectors. rows: SHA-256 of an image → its row in the file."""
    name = store.link(npy)
    with store.transaction() as base:
        base.execute("INSERT OR IGNORE INTO encoders (name) VALUES (?)", (encoder,))
        (number,) = base.execute("SELECT number FROM encoders WHERE name = ?", (encoder,)).fetchone()
        file = store.number_of(name)
        base.executemany(
            "INSERT OR REPLACE INTO vectors SELECT ?, number, ?, ? FROM images WHERE sha = ?",
            [(number, file, row, bytes.fromhex(sha)) for sha, row in rows.items()],
        )
