"""Which accepted images a release may contain: not withdrawn, under a licence that permits it, no near copies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.curate.core.parsing import rows_of
from driftline.curate.core.seeding import time_order
from driftline.curate.images.changes import alters
from driftline.curate.images.changes import joined as joined_steps
from driftline.curate.images.near_duplicates import copies_by_hash, group_pairs, pairs_by_cosine
from driftline.curate.release.composing.collection import Collection
from driftline.curate.release.licences import no_derivatives
from driftline.curate.release.packing import FetchedImages, published
from driftline.curate.release.settings import ReleaseSettings
from driftline.curate.retrieval.vector_store import parts, vectors_of

WITHDRAWN = "withdrawn"  # by its owner
LICENCE = "licence"  # why a photo is not published, but its address may be
Rows = list[dict[str, Any]]


def publishable(
    accepted: Rows, group: Mapping[str, str], collection: Collection, seed: int, first: Container[str] = ()
) -> tuple[Rows, dict[str, str]]:
    """The accepted images that may be published, and id → reason of the others.

    first: ids of the release before, which go before their near copies.
    """
    settings = collection.settings
    dropped: dict[str, str] = {}
    times = Counter(row["id"] for row in accepted)
    left = drop(accepted, (id_ for id_, n in times.items() if n > 1), "several_concepts", dropped)
    left = drop(left, collection.withdrawn, WITHDRAWN, dropped)
    licences = _licences(left, collection.table)
    refused = [id_ for id_, texts in licences.items() if not settings.permits(*texts)]
    left = drop(left, refused, LICENCE, dropped)
    left = drop(left, _unalterable(left, licences, collection), "no_derivatives", dropped)
    if settings.near_copies == "drop":
        left = drop(left, _later_copies(left, group, collection.members, seed, first), "near_copy", dropped)
    return left, dropped


def ids_of(rows: Rows) -> list[str]:
    return [row["id"] for row in rows]


def near_copy_groups(embedded: Path, ids: Sequence[str], settings: ReleaseSettings) -> dict[str, str]:
    """id → the id that names its group of near copies. embedded: output of the stage embed."""
    ids = sorted(set(ids))
    hashes: dict[str, int] = {}
    for table, _ in parts(embedded):
        hashes |= {i: h for i, h in rows_of(table, "id", "phash") if h is not None}
    hashed = [i for i in ids if i in hashes]
    order = hashed + [i for i in ids if i not in hashes]  # imported vectors have no hashes: only their cosines count
    links = copies_by_hash(np.array([hashes[i] for i in hashed], np.uint64), settings.copy_bits)
    if settings.copy_cosine is not None:
        near = pairs_by_cosine(vectors_of(embedded, order).astype(np.float32), settings.copy_cosine)
        links = np.concatenate([links, near])
    return {i: order[g] for i, g in zip(order, group_pairs(links, len(order)).tolist(), strict=True)}


def drop(rows: Rows, ids: Iterable[str], reason: str, dropped: dict[str, str]) -> Rows:
    """The rows without those of `ids`, which get their reason in `dropped`."""
    removed = set(ids)
    gone = [row["id"] for row in rows if row["id"] in removed]
    dropped |= dict.fromkeys(gone, reason)
    return [row for row in rows if row["id"] not in removed]


def lookup(rows: Rows, path: Sequence[Path] | Path, columns: Sequence[str]) -> dict[str, dict[str, Any]]:
    """id → some columns of a Parquet table, for the ids of `rows`."""
    table = pq.read_table(path if isinstance(path, Path) else list(path), columns=["id", *columns])
    ids = pa.array([row["id"] for row in rows], pa.string())
    return {row["id"]: row for row in table.filter(pc.is_in(table["id"], value_set=ids)).to_pylist()}


def _licences(rows: Rows, table: Sequence[Path]) -> dict[str, tuple[str, ...]]:
    """id → name and address of its licence, if they are known."""
    texts = lookup(rows, table, ("licence", "licence_url"))
    return {id_: tuple(v for v in (row["licence"], row["licence_url"]) if v) for id_, row in texts.items()}


def _unalterable(rows: Rows, licences: Mapping[str, Sequence[str]], collection: Collection) -> set[str]:
    """Images whose licence forbids changes and whose pixels are not those of the file: fetch encoded them again, or
    removing the metadata of a damaged file would."""
    fixed = [row for row in rows if no_derivatives(licences.get(row["id"], ()))]
    images = FetchedImages.open(collection.fetched, collection.members, {row["id"] for row in fixed})
    by_fetch = {id_: row["changes"] for id_, row in lookup(fixed, collection.members, ("changes",)).items()}
    for id_ in by_fetch:
        by_fetch[id_] = joined_steps(by_fetch[id_], published(images.get(id_)[0], collection.settings.strip)[1])
    return {id_ for id_, changes in by_fetch.items() if alters(changes)}


def _later_copies(
    rows: Rows, group: Mapping[str, str], members: Path, seed: int, before: Container[str] = ()
) -> set[str]:
    """All images of each group except the one that was uploaded first, of those in `before` if there are any; among
    equal times `seed` draws it."""
    uploaded, ids = lookup(rows, members, ("uploaded",)), [row["id"] for row in rows]
    first: dict[str, str] = {}
    order = time_order([uploaded[id_]["uploaded"] for id_ in ids], ids, seed).tolist()
    for i in sorted(order, key=lambda i: ids[i] not in before):
        first.setdefault(group[ids[i]], ids[i])
    return set(ids) - set(first.values())
