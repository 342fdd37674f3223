"""What a store knows of a shard's images: it is used before anything is computed, and it takes what was computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from driftline.curate.core.outside.images import PREPARATION
from driftline.curate.core.system.own_code import codes_of
from driftline.curate.encoders import Encoder
from driftline.curate.store.database import Place, open_store
from driftline.curate.store.vectors import Look, keep_vectors, looks, read_vectors

Vectors16 = npt.NDArray[np.float16]


def encoder_name(encoder: Encoder, batch: int) -> str:
    """Name of all that decides the bits of a vector, also how pictures are prepared. Raises BadPlugin for an encoder
    whose code cannot be read."""
    own = "".join(f" {code}" for code in codes_of([type(encoder)]).values())
    device = encoder.device.partition(":")[0]
    return f"{encoder.fingerprint} {device} {encoder.precision} {batch} {PREPARATION}{own}"


def stored_looks(place: Place, name: str, part: pa.Table) -> dict[str, Look]:
    """SHA-256 → what the store has of the images of a shard."""
    if not place.reads:
        return {}
    with open_store(place.folder) as store:
        return looks(store, name, part["sha256"].to_pylist())


def with_stored(
    place: Place,
    stored: Mapping[str, Look],
    part: pa.Table,
    computed: Vectors16,
    faults: Sequence[str | None],
    hashes: Sequence[int | None],
) -> tuple[Vectors16, list[str | None], list[int | None]]:
    """(vectors, faults, hashes) of all images of a shard, in order. computed (M, D), faults, hashes: of the images that
    were not stored."""
    digests = part["sha256"].to_pylist()
    new = iter(zip(faults, hashes, strict=True))
    rows = [(stored[d].fault, stored[d].phash) if d in stored else next(new) for d in digests]
    good = [d for d, (fault, _) in zip(digests, rows, strict=True) if fault is None]
    is_stored = np.array([d in stored for d in good], bool)
    vectors = np.empty((len(good), computed.shape[1]), np.float16)
    vectors[~is_stored] = computed
    if is_stored.any():
        with open_store(place.folder) as store:
            vectors[is_stored] = read_vectors(store, [stored[d] for d in good if d in stored], computed.shape[1])
    return vectors, [fault for fault, _ in rows], [hash_ for _, hash_ in rows]


def keep_looks(
    place: Place, name: str, part: pa.Table, npy: Path, faults: Sequence[str | None], hashes: Sequence[int | None]
) -> None:
    """Take the vectors of a shard, whose file is complete."""
    new: dict[str, Look] = {}
    row = 0
    for digest, fault, hash_ in zip(part["sha256"].to_pylist(), faults, hashes, strict=True):
        new[digest] = Look(fault, hash_, "", row)
        row += fault is None
    with open_store(place.folder) as store:
        keep_vectors(store, name, npy, new)
