"""Verdicts and images of a run → a release: permitted images, selection, splits, tars, features, card."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.core.errors import BadConfig
from curate.core.executor import Executor
from curate.core.parsing import rows_of
from curate.core.run_log import RunLog
from curate.embedding.features import features
from curate.encoders import EncoderSpec
from curate.images.near_duplicates import group_pairs, pairs_by_cosine, pairs_by_hash
from curate.images.strip_exif import strip_metadata
from curate.release.card_sections import missing_sections
from curate.release.changelog import all_withdrawn, changes_since, check_version
from curate.release.drift import drift
from curate.release.format import Release
from curate.release.packing import SHARD_IMAGES, FetchedImages, Packed, pack, packed_images
from curate.release.selection import all_splits, select, split_groups
from curate.release.settings import ReleaseSettings
from curate.release.unlabelled import write_unlabelled
from curate.release.writer import write_release
from curate.retrieval.vector_store import parts, vectors_of

FROM_TABLE = ("user", "title", "licence", "licence_url", "page_url", "url")
NOT_FOR_TRAINING = ("sensitive", "held_for_review")
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Collection:
    """The outputs of earlier stages, and the files that the settings name."""

    table: Sequence[Path]
    """Parquet parts with one row per photo"""
    fetched: Path
    """folder of the shards"""
    members: Path
    """Parquet table with the shard and bucket of every image"""
    embedded: Path
    """folder of the vectors"""
    verdicts: pa.Table
    """table of VERDICTS"""
    asked: Path
    """Parquet table with the scores of all images that were asked"""
    buckets: Sequence[Mapping[str, Any]]
    """the labelled buckets, as in buckets.json"""
    classes: Sequence[str]
    """names in the order of their labels"""
    settings: ReleaseSettings
    run_log: RunLog
    executor: Executor
    withdrawn: Sequence[str] = ()
    """ids that their owners withdrew"""
    previous: Release | None = None
    """the previous release"""
    judgement: str | None = None
    """text of the card's judgement file"""
    card: str | None = None
    """template of the card"""
    backbones: Mapping[str, EncoderSpec] = field(default_factory=dict)
    """name → encoder of further features"""
    batch: int = 64
    """images per batch for these"""


def compose(
    collection: Collection, seed: int, provenance: Mapping[str, Any], out: Path
) -> tuple[int, int, Counter[str]]:
    """Write the release into `out`/release; finished tars are not written again.

    Returns the numbers of accepted and published images, and of dropped images by reason.
    """
    settings, release, records = collection.settings, out / "release", out / "records"
    if settings.strict and (missing := missing_sections(collection.judgement)):
        raise BadConfig(
            f"The card lacks the sections {', '.join(missing)}.",
            "Expected each as a paragraph that begins with its title in bold.",
            "Write them into the file release.judgement, or set release.strict: false.",
        )
    accepted: Rows = collection.verdicts.filter(pc.equal(collection.verdicts["verdict"], "kept")).to_pylist()
    group = near_copy_groups(collection, accepted)
    left, dropped = publishable(accepted, group, collection)
    numbers = [bucket["index"] for bucket in collection.buckets]
    chosen = _with_metadata(select(left, numbers, collection.classes, settings, seed), collection)
    dropped["surplus"] = len(left) - len(chosen)
    groups = split_groups(chosen, _numbers(chosen, group))
    splits = all_splits(chosen, groups, settings, seed)
    # the card counts near copies among published images only
    copies = _numbers(chosen, near_copy_groups(collection, chosen))
    for i, row in enumerate(chosen):
        row |= {"class": row["concept"], "label": collection.classes.index(row["concept"]), "group": groups[i]}
        row["split"] = splits["split_0"][i]
    published = {row["id"] for row in chosen}
    packed = _pack(chosen, collection, release / "shards", records)
    withdrawn = dict.fromkeys(collection.withdrawn, settings.version)
    changes = None
    if collection.previous is not None:
        changes = changes_since(collection.previous, packed.rows, collection.classes, splits, withdrawn)
        check_version(settings.version, changes)
    vectors = {"clip": vectors_of(collection.embedded, [row["id"] for row in packed.rows])}
    for name, spec in collection.backbones.items():
        images = list(packed_images(release / "shards", packed))
        vectors[name] = features(images, spec, collection.run_log, collection.batch, collection.executor)
    unlabelled = None
    if settings.unlabelled != "none":
        unlabelled = _pack_unlabelled(collection, published, release, records)
    write_release(
        packed,
        vectors,
        collection.buckets,
        collection.classes,
        splits,
        {**provenance, "stripped": settings.strip, "drift": _drift(packed, splits, vectors)},
        release,
        settings,
        copies,
        changes,
        all_withdrawn(collection.previous, withdrawn, {row["id"] for row in accepted}),
        collection.card,
        unlabelled,
    )
    shutil.rmtree(records)
    return len(accepted), len(chosen), dropped


def publishable(accepted: Rows, group: Mapping[str, str], collection: Collection) -> tuple[Rows, Counter[str]]:
    """(the accepted images that may be published, the numbers of the others by reason)."""
    settings = collection.settings
    dropped: Counter[str] = Counter()
    times = Counter(row["id"] for row in accepted)
    left = [row for row in accepted if times[row["id"]] == 1]
    dropped["several_concepts"] = len(accepted) - len(left)
    left, dropped["withdrawn"] = _without(left, collection.withdrawn)
    licences = _licences(left, collection.table) if settings.licences or settings.strip else {}
    if settings.licences:
        allowed = tuple(settings.licences)
        others = (i for i, texts in licences.items() if not any(text.startswith(allowed) for text in texts))
        left, dropped["licence"] = _without(left, others)
    if settings.strip:
        left, dropped["no_derivatives"] = _without(left, _unalterable(left, licences, collection))
    if settings.near_copies == "drop":
        left, dropped["near_copy"] = _without(left, _later_copies(left, group, collection.members))
    return left, dropped


def near_copy_groups(collection: Collection, rows: Rows) -> dict[str, str]:
    """id → the id that names its group of near copies."""
    embedded, settings = collection.embedded, collection.settings
    ids = sorted({row["id"] for row in rows})
    hashes: dict[str, int] = {}
    for table, _ in parts(embedded):
        hashes |= {i: h for i, h in rows_of(table, "id", "phash") if h is not None}
    hashed = [i for i in ids if i in hashes]
    order = hashed + [i for i in ids if i not in hashes]  # imported vectors have no hashes: only their cosines count
    links = pairs_by_hash(np.array([hashes[i] for i in hashed], np.uint64), settings.copy_bits)
    if settings.copy_cosine is not None:
        near = pairs_by_cosine(vectors_of(embedded, order).astype(np.float32), settings.copy_cosine)
        links = np.concatenate([links, near])
    return {i: order[g] for i, g in zip(order, group_pairs(links, len(order)).tolist(), strict=True)}


def _numbers(rows: Rows, group: Mapping[str, str]) -> npt.NDArray[np.int64]:
    """(N,) number of the group of each row."""
    numbers = {g: i for i, g in enumerate(sorted({group[row["id"]] for row in rows}))}
    return np.array([numbers[group[row["id"]]] for row in rows], np.int64)


def _without(rows: Rows, ids: Iterable[str]) -> tuple[Rows, int]:
    """(the rows without those of `ids`, number of removed rows)."""
    removed = set(ids)
    left = [row for row in rows if row["id"] not in removed]
    return left, len(rows) - len(left)


def _lookup(rows: Rows, path: Sequence[Path] | Path, columns: Sequence[str]) -> dict[str, dict[str, Any]]:
    """id → some columns of a Parquet table, for the ids of `rows`."""
    table = pq.read_table(path if isinstance(path, Path) else list(path), columns=["id", *columns])
    ids = pa.array([row["id"] for row in rows], pa.string())
    return {row["id"]: row for row in table.filter(pc.is_in(table["id"], value_set=ids)).to_pylist()}


def _licences(rows: Rows, table: Sequence[Path]) -> dict[str, tuple[str, ...]]:
    """id → name and address of its licence, if they are known."""
    texts = _lookup(rows, table, ("licence", "licence_url"))
    return {id_: tuple(v for v in (row["licence"], row["licence_url"]) if v) for id_, row in texts.items()}


def _unalterable(rows: Rows, licences: Mapping[str, Sequence[str]], collection: Collection) -> set[str]:
    """Images whose licence forbids changes and whose damaged files would be compressed again."""
    fixed = [row["id"] for row in rows if _no_derivatives(licences.get(row["id"], ()))]
    images = FetchedImages.open(collection.fetched, collection.members, fixed)
    return {id_ for id_ in fixed if strip_metadata(images.get(id_)[0])[1]}


def _no_derivatives(licence: Sequence[str]) -> bool:
    """Whether a Creative Commons licence forbids altered copies, by its name or address."""
    return any("noderiv" in text.lower().replace("-", "").replace(" ", "") or "-nd" in text.lower() for text in licence)


def _later_copies(rows: Rows, group: Mapping[str, str], members: Path) -> set[str]:
    """All images of each group except the one that was uploaded first; equal times are ordered by id."""
    uploaded = _lookup(rows, members, ("uploaded",))
    first: dict[str, tuple[int, str]] = {}
    for row in rows:
        place = (uploaded[row["id"]]["uploaded"], row["id"])
        first[group[row["id"]]] = min(place, first.get(group[row["id"]], place))
    return {row["id"] for row in rows} - {id_ for _, id_ in first.values()}


def _with_metadata(chosen: Sequence[Mapping[str, Any]], collection: Collection) -> Rows:
    """The rows with the metadata of each photo from earlier stages."""
    rows = [dict(row) for row in chosen]
    table = _lookup(rows, collection.table, (*FROM_TABLE, "nickname"))
    members = _lookup(rows, collection.members, ("uploaded", "width", "height"))
    asked = pq.read_table(collection.asked)
    scores = {(i, c): s for i, c, s in rows_of(asked, "id", "concept", "score")}
    return [
        {
            **row,
            **members[row["id"]],
            **{k: table[row["id"]][k] for k in FROM_TABLE},
            "creator": table[row["id"]]["nickname"],
            "score": scores[row["id"], row["concept"]],
        }
        for row in rows
    ]


def _pack(rows: Rows, collection: Collection, folder: Path, records: Path) -> Packed:
    """Write the fetched images of `rows` as tars into `folder`."""
    images = FetchedImages.open(collection.fetched, collection.members, {row["id"] for row in rows})
    strip = collection.settings.strip
    return pack(rows, images, folder, records, SHARD_IMAGES, strip, collection.executor, collection.run_log)


def _pack_unlabelled(
    collection: Collection, published: set[str], release: Path, records: Path
) -> tuple[int, dict[str, str]]:
    """Write the unlabelled images; returns their number and the checksums of their tars."""
    verdicts, settings = collection.verdicts, collection.settings
    unfit = verdicts.filter(pc.is_in(verdicts["verdict"], value_set=pa.array(NOT_FOR_TRAINING)))["id"].to_pylist()
    without = published | {*collection.withdrawn, *unfit}
    index = release / "unlabelled.parquet"
    n = write_unlabelled(collection.members, list(collection.table), without, index, settings.licences)
    if settings.unlabelled == "index":
        return n, {}
    packed = _pack(pq.read_table(index).to_pylist(), collection, release / "unlabelled", records / "unlabelled")
    return n, {f"unlabelled/{name}": digest for name, digest in packed.sums.items()}


def _drift(
    packed: Packed, splits: Mapping[str, Sequence[str]], vectors: Mapping[str, npt.NDArray[np.float16]]
) -> dict[str, Any]:
    """Accuracy of nearest class means by distance of the buckets, for the first split and the first features that did
    not choose the images, if there are any: those that chose them recognise them in every bucket."""
    name = list(vectors)[:2][-1]
    y = np.array([row["label"] for row in packed.rows], np.int64)
    bucket = np.array([row["bucket"] for row in packed.rows])
    found = drift(np.asarray(vectors[name], np.float32), y, bucket, np.array(splits["split_0"]))
    return {"features": name, "by_distance": {d: round(v, 4) for d, v in found["by_distance"].items() if int(d) >= 0}}
