"""Verdicts and images of a run → a release: permitted images, selection, splits, tars, features, card."""

import shutil
from collections import Counter
from collections.abc import Collection as Names
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import write_parquet
from driftline.curate.embedding.features import features_with_store, keep_features
from driftline.curate.embedding.vector_store import vectors_of
from driftline.curate.images.changes import joined as joined_steps
from driftline.curate.metadata.released_ids import mapped
from driftline.curate.release.changes import all_withdrawn, changes_since, check_version
from driftline.curate.release.choice import LICENCE, Collection, Rows, choose, ids_of, shown, with_metadata
from driftline.curate.release.drift import of_release
from driftline.curate.release.identity import unlabelled_of
from driftline.curate.release.packing import SHARD_IMAGES, FetchedImages, Packed, pack, packed_images
from driftline.curate.release.unlabelled import (
    ADDRESSES,
    UNLABELLED,
    Tested,
    copies_of_tests,
    reachable,
    write_unlabelled,
)
from driftline.curate.release.writer import for_credit, write_release

NOT_FOR_TRAINING = ("sensitive", "held_for_review")


def compose(
    collection: Collection, seed: int, provenance: Mapping[str, Any], out: Path
) -> tuple[int, int, Counter[str]]:
    """Write the release into `out`/release, and `out`/dropped.parquet; finished tars are not written again.

    Returns the numbers of accepted and published images, and of dropped images by reason.
    """
    settings, release, records = collection.settings, out / "release", out / "records"
    choice = choose(collection, seed)
    accepted, chosen, classes = choice.accepted, choice.rows, choice.classes
    splits, copies, dropped = choice.splits, choice.copies, choice.dropped
    own_ids = collection.own
    packed = _pack(chosen, collection, release / "shards", records)
    vectors = {"clip": vectors_of(collection.embedded, mapped(ids_of(packed.rows), own_ids))}
    sources, kind = [row["stored_sha256"] for row in packed.rows], "stripped" if settings.strip else "as fetched"
    vectors |= _further_features(collection, release, packed, sources, kind)
    further = None
    with_own = [row | {"id": own_ids.get(row["id"], row["id"])} for row in packed.rows]
    tests = Tested.of(with_own, splits, settings.copy_bits)
    refused = [row for row in accepted if dropped.get(row["id"]) == LICENCE and not settings.licences]
    seen: Names[str] = ()
    if refused or settings.unlabelled != "none":
        seen = copies_of_tests(collection.embedded, tests, settings.copy_cosine)
    addresses = _write_addresses(refused, collection, classes, release, tests, seen) if refused else 0
    if settings.unlabelled != "none":
        labelled_ids = {*ids_of(with_own), *ids_of(refused)}
        further = _pack_unlabelled(collection, labelled_ids, release, records, tests, seen)
    changes, withdrawn = None, collection.gone
    if (previous := collection.previous) is not None:
        listed = unlabelled_of(release) if further is not None else []
        changes = changes_since(previous, packed.rows, classes, splits, withdrawn, vectors, listed)
        check_version(settings.version, changes)
    facts = {**provenance, "stripped": settings.strip, "drift": of_release(packed.rows, splits["split_0"], vectors)}
    facts |= {"addresses": addresses} if addresses else {}
    write_release(
        packed,
        vectors,
        buckets=collection.buckets,
        classes=classes,
        splits=splits,
        provenance=facts,
        out=release,
        settings=settings,
        copies=copies,
        changes=changes,
        withdrawn=all_withdrawn(previous, withdrawn, mapped(ids_of(accepted), collection.names), settings),
        unlabelled=further,
    )
    for name, spec in collection.backbones.items():
        npy = release / "features" / f"{name}.npy"
        keep_features(collection.store, sources, spec, collection.batch, kind, npy)
    shutil.rmtree(records, ignore_errors=True)
    table = pa.table({"id": pa.array(list(dropped), pa.string()), "reason": pa.array(dropped.values(), pa.string())})
    write_parquet(out / "dropped.parquet", table)
    return len(chosen) + len(dropped), len(chosen), Counter(dropped.values())


def _further_features(
    collection: Collection, release: Path, packed: Packed, sources: Sequence[str], kind: str
) -> dict[str, npt.NDArray[np.float16]]:
    """Name → (N, D) of the packed images, by the further encoders. sources: SHA-256 of the stored images."""
    vectors = {}
    for name, spec in collection.backbones.items():
        images = list(packed_images(release / "shards", packed))
        vectors[name] = features_with_store(
            images, sources, spec, collection.run_log, batch=collection.batch, executor=collection.executor,
            place=collection.store, kind=kind,
        )  # fmt: skip
    return vectors


def _pack(rows: Rows, collection: Collection, folder: Path, records: Path) -> Packed:
    """Write the fetched images of `rows` as tars into `folder`."""
    rows = [row | {"changes": joined_steps(collection.requested(row["url"] or ""), row["changes"])} for row in rows]
    own_ids = set(mapped(ids_of(rows), collection.own))
    images = FetchedImages.open(collection.fetched, collection.members, own_ids).renamed(collection.names)
    strip = collection.settings.strip
    return pack(
        rows, images, folder=folder, records=records, shard_images=SHARD_IMAGES, strip=strip,
        executor=collection.executor, run_log=collection.run_log,
    )  # fmt: skip


def _pack_unlabelled(
    collection: Collection,
    labelled: set[str],
    release: Path,
    records: Path,
    tests: Tested,
    copies: Names[str],
) -> tuple[int, Counter[str], Packed]:
    """Write the unlabelled images; returns their number, reason → photos left out for the tests, and their tars."""
    verdicts, settings = collection.verdicts, collection.settings
    unfit = verdicts.filter(pc.is_in(verdicts["verdict"], value_set=pa.array(NOT_FOR_TRAINING)))["id"].to_pylist()
    without = labelled | {*collection.withdrawn, *unfit}
    index = release / "unlabelled.parquet"
    n, left = write_unlabelled(
        collection.members, list(collection.table), without, index, settings, tests, copies, collection.names
    )
    if settings.unlabelled == "index":
        return n, left, Packed([], {})
    listed = [row | shown(row) for row in pq.read_table(index).to_pylist()]
    rows = [row for row in listed if settings.permits(row["licence"], row["licence_url"])]
    others = [row for row in listed if not settings.permits(row["licence"], row["licence_url"])]
    packed = _pack(rows, collection, release / "unlabelled", records / "unlabelled")
    table = for_credit(pa.Table.from_pylist([*packed.rows, *others], UNLABELLED), settings.columns)
    write_parquet(index, table := reachable(table, settings))
    return len(table), left, packed


def _write_addresses(
    refused: Rows, collection: Collection, classes: Sequence[str], release: Path, tests: Tested, copies: Names[str]
) -> int:
    """List the addresses of labelled photos whose licence permits no copies, and no photo that would give a test away;
    returns their number."""
    rows = [
        row | {"id": collection.names.get(row["id"], row["id"]), "sha256": None, "class": row["concept"],
               "label": classes.index(row["concept"])}
        for row in with_metadata(refused, collection)
        if row["id"] not in copies and tests.why(row["id"], row["user"], row["source_sha256"]) is None
    ]  # fmt: skip
    table = for_credit(pa.Table.from_pylist(rows, ADDRESSES), collection.settings.columns)
    table = table.filter(pc.or_(pc.is_valid(table["url"]), pc.is_valid(table["page_url"])))
    collection.run_log.say(
        f"{len(refused):,} photos have no licence that permits copies: {len(table):,} are listed in addresses.parquet. "
        "release.own publishes all, release.licences says which."
    )
    if len(table):
        write_parquet(release / "addresses.parquet", table)
    return len(table)
