"""Verdicts and images of a run → a release: permitted images, selection, splits, tars, features, card."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import write_parquet
from driftline.curate.core.errors import BadConfig, Shortage
from driftline.curate.core.executor import Executor
from driftline.curate.core.parsing import rows_of
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.seeding import time_order
from driftline.curate.embedding.features import features_with_store, keep_features
from driftline.curate.encoders import EncoderSpec
from driftline.curate.images.changes import alters
from driftline.curate.images.changes import joined as joined_steps
from driftline.curate.images.near_duplicates import copies_by_hash, group_pairs, pairs_by_cosine
from driftline.curate.release.card_sections import missing_sections
from driftline.curate.release.drift import of_release
from driftline.curate.release.format import Release
from driftline.curate.release.licences import no_derivatives
from driftline.curate.release.packing import SHARD_IMAGES, FetchedImages, Packed, pack, packed_images, published
from driftline.curate.release.pool import COPY, Tested, left_out
from driftline.curate.release.selection import all_splits, gaps_of, select, split_groups, without_images
from driftline.curate.release.settings import ReleaseSettings
from driftline.curate.release.unlabelled import UNLABELLED, copies_of_tests, write_unlabelled
from driftline.curate.release.versions.appending import Appended, Former, Old, append_tars, joined, labelled, unlabelled
from driftline.curate.release.versions.changelog import all_withdrawn, changes_since, check_version, with_parts
from driftline.curate.release.versions.identity import unlabelled_of
from driftline.curate.release.versions.tombstones import WITHDRAWN
from driftline.curate.release.writer import write_release
from driftline.curate.retrieval.vector_store import parts, vectors_of
from driftline.curate.store.database import Place

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
    withdrawn: Mapping[str, bool] = field(default_factory=dict)
    """id that its owner withdrew → whether an earlier release of the run held it"""
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
    store: Place | None = None
    """where their vectors are kept; None: nowhere"""
    requested: Callable[[str], str] = lambda url: ""
    """address → in which size the source was asked for the photo, see `Source.requested`"""
    people: Mapping[str, int] | None = None
    """id → answers of people that count; None: nobody was asked"""


def compose(
    collection: Collection, seed: int, provenance: Mapping[str, Any], out: Path
) -> tuple[int, int, Counter[str]]:
    """Write the release into `out`/release, and `out`/dropped.parquet; finished tars are not written again.

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
    former = Former.of(collection.previous) if settings.append and collection.previous is not None else None
    classes = list(collection.classes) if former is None else former.classes(collection.classes)
    chosen, splits, copies, dropped, why = _choose(collection, accepted, classes, former, seed)
    published = {row["id"] for row in chosen}
    if former is None:
        tars = [Appended(_pack(chosen, collection, release / "shards", records))]
    else:
        old = labelled(former.release)
        tars = [_append(chosen, old, "shards", collection, why=why, release=release, records=records)]
    packed = tars[0].packed
    place = {row["id"]: i for i, row in enumerate(chosen)}  # the tars of an appended release have another order
    order = [place[row["id"]] for row in packed.rows]
    splits, copies = {name: [sides[i] for i in order] for name, sides in splits.items()}, copies[order]
    changes = None
    if collection.previous is not None:
        changes = changes_since(collection.previous, packed.rows, classes, splits, collection.withdrawn, why)
        check_version(settings.version, changes)
    vectors = {"clip": vectors_of(collection.embedded, [row["id"] for row in packed.rows])}
    sources, kind = [row["stored_sha256"] for row in packed.rows], "stripped" if settings.strip else "as fetched"
    for name, spec in collection.backbones.items():
        images = list(packed_images(release / "shards", packed))
        vectors[name] = features_with_store(
            images, sources, spec, collection.run_log, batch=collection.batch, executor=collection.executor,
            place=collection.store, kind=kind,
        )  # fmt: skip
    further = None
    if settings.unlabelled != "none":
        tests = Tested.of(packed.rows, splits, settings.copy_bits)
        n, counts, part = _pack_unlabelled(collection, published, why, release, records, tests)
        further = n, counts, part.packed
        tars.append(part)
    if changes is not None and collection.previous is not None:
        listed = unlabelled_of(release) if further is not None else []
        changes = with_parts(changes, collection.previous, [row["id"] for row in packed.rows], vectors, listed)
        check_version(settings.version, changes)
    if former is not None and changes is not None:
        changes["tars"] = joined(part.tars for part in tars if part.tars)
    stripped = settings.strip and _was_stripped(former)
    facts = {**provenance, "stripped": stripped, "drift": of_release(packed.rows, splits["split_0"], vectors)}
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
        withdrawn=all_withdrawn(collection.previous, collection.withdrawn, _ids(accepted), settings),
        template=collection.card,
        unlabelled=further,
        tombstones=[stone for part in tars for stone in part.tombstones],
    )
    for name, spec in collection.backbones.items():
        npy = release / "features" / f"{name}.npy"
        keep_features(collection.store, sources, spec, collection.batch, kind, npy)
    shutil.rmtree(records, ignore_errors=True)  # a release that only loses images packs none
    table = pa.table({"id": pa.array(list(dropped), pa.string()), "reason": pa.array(dropped.values(), pa.string())})
    write_parquet(out / "dropped.parquet", table)
    return len(chosen) + len(dropped), len(chosen), Counter(dropped.values())


def _choose(
    collection: Collection, accepted: Rows, classes: Sequence[str], former: Former | None, seed: int
) -> tuple[Rows, dict[str, list[str]], npt.NDArray[np.int64], dict[str, str], dict[str, str]]:
    """The N images that are published, with class, label, group and side; split → side of each; (N,) number of the
    group of near copies of each; and of the others what `publishable` returns."""
    settings, embedded = collection.settings, collection.embedded
    group = near_copy_groups(embedded, _ids(accepted), settings)
    former_rows: Mapping[str, Any] = {} if former is None else former.rows
    left, dropped, why = publishable(accepted, group, collection, seed, former_rows)
    if former is not None:
        users = _lookup(left, collection.table, ("user",))
        bridges = former.bridges((users[row["id"]] for row in left), group)
        left = _drop(left, bridges, "links_groups", dropped, why)
    buckets, share = collection.buckets, settings.test_share
    if not (selected := select(left, [b["index"] for b in buckets], classes, settings, seed, former_rows)):
        raise Shortage(f"No accepted image may be published: {', '.join(sorted(set(dropped.values())))}.")
    chosen = _with_metadata(selected, collection)
    _drop(left, {row["id"] for row in left} - {row["id"] for row in chosen}, "surplus", dropped, why)
    groups = split_groups(chosen, _numbers(chosen, group))
    if former is not None:
        groups = former.groups(chosen, groups)
    splits = all_splits(chosen, groups, settings, seed, None if former is None else partial(former.sides, chosen))
    for gap in without_images(chosen, buckets, classes) + gaps_of(chosen, groups, splits, share):
        collection.run_log.say(gap)
    for i, row in enumerate(chosen):
        row |= {"class": row["concept"], "label": classes.index(row["concept"]), "group": groups[i]}
        row["split"] = splits["split_0"][i]
    # the card counts near copies among published images only
    copies = _numbers(chosen, near_copy_groups(embedded, _ids(chosen), settings))
    return chosen, splits, copies, dropped, why


def _was_stripped(former: Former | None) -> bool:
    """Whether the tars that are kept hold no metadata, either."""
    return former is None or bool(former.release.facts["provenance"].get("stripped"))


def publishable(
    accepted: Rows, group: Mapping[str, str], collection: Collection, seed: int, first: Container[str] = ()
) -> tuple[Rows, dict[str, str], dict[str, str]]:
    """The accepted images that may be published, id → reason of the others, and id → why it is not among them, as far
    as the run knows.

    first: ids of the release that is appended to, which go before their near copies.
    """
    settings = collection.settings
    dropped: dict[str, str] = {}
    why = {id_: f"verdict {name}" for id_, name in rows_of(collection.verdicts, "id", "verdict") if name != "kept"}
    times = Counter(row["id"] for row in accepted)
    left = _drop(accepted, (id_ for id_, n in times.items() if n > 1), "several_concepts", dropped, why)
    left = _drop(left, collection.withdrawn, WITHDRAWN, dropped, why)
    licences = _licences(left, collection.table)
    if settings.licences:
        allowed = tuple(settings.licences)
        others = (i for i, texts in licences.items() if not any(text.startswith(allowed) for text in texts))
        left = _drop(left, others, "licence", dropped, why)
    left = _drop(left, _unalterable(left, licences, collection), "no_derivatives", dropped, why)
    if settings.near_copies == "drop":
        left = _drop(left, _later_copies(left, group, collection.members, seed, first), "near_copy", dropped, why)
    return left, dropped, why | dict.fromkeys(collection.withdrawn, WITHDRAWN)


def _ids(rows: Rows) -> list[str]:
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


def _numbers(rows: Rows, group: Mapping[str, str]) -> npt.NDArray[np.int64]:
    """(N,) number of the group of each row."""
    numbers = {g: i for i, g in enumerate(sorted({group[row["id"]] for row in rows}))}
    return np.array([numbers[group[row["id"]]] for row in rows], np.int64)


def _drop(rows: Rows, ids: Iterable[str], reason: str, dropped: dict[str, str], why: dict[str, str]) -> Rows:
    """The rows without those of `ids`, which get their reason in `dropped` and `why`."""
    removed = set(ids)
    gone = [row["id"] for row in rows if row["id"] in removed]
    dropped |= dict.fromkeys(gone, reason)
    why |= dict.fromkeys(gone, reason)
    return [row for row in rows if row["id"] not in removed]


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
    """Images whose licence forbids changes and whose pixels are not those of the file: fetch encoded them again, or
    removing the metadata of a damaged file would."""
    fixed = [row for row in rows if no_derivatives(licences.get(row["id"], ()))]
    images = FetchedImages.open(collection.fetched, collection.members, {row["id"] for row in fixed})
    by_fetch = {id_: row["changes"] for id_, row in _lookup(fixed, collection.members, ("changes",)).items()}
    for id_ in by_fetch:
        by_fetch[id_] = joined_steps(by_fetch[id_], published(images.get(id_)[0], collection.settings.strip)[1])
    return {id_ for id_, changes in by_fetch.items() if alters(changes)}


def _later_copies(
    rows: Rows, group: Mapping[str, str], members: Path, seed: int, before: Container[str] = ()
) -> set[str]:
    """All images of each group except the one that was uploaded first, of those in `before` if there are any; among
    equal times `seed` draws it."""
    uploaded, ids = _lookup(rows, members, ("uploaded",)), [row["id"] for row in rows]
    first: dict[str, str] = {}
    order = time_order([uploaded[id_]["uploaded"] for id_ in ids], ids, seed).tolist()
    for i in sorted(order, key=lambda i: ids[i] not in before):
        first.setdefault(group[ids[i]], ids[i])
    return set(ids) - set(first.values())


def _with_metadata(chosen: Sequence[Mapping[str, Any]], collection: Collection) -> Rows:
    """The rows with the metadata of each photo from earlier stages."""
    rows = [dict(row) for row in chosen]
    table = _lookup(rows, collection.table, (*FROM_TABLE, "nickname"))
    of_members = ("uploaded", "width", "height", "sha256", "source_sha256", "changes")
    members = _lookup(rows, collection.members, of_members)
    asked = pq.read_table(collection.asked)
    scores = {(i, c): s for i, c, s in rows_of(asked, "id", "concept", "score")}
    return [
        {
            **row,
            **{"stored_sha256" if k == "sha256" else k: v for k, v in members[row["id"]].items()},
            **{k: table[row["id"]][k] for k in FROM_TABLE},
            "creator": table[row["id"]]["nickname"],
            "score": scores[row["id"], row["concept"]],
            **_answered(row, collection.people),
        }
        for row in rows
    ]


def _answered(row: Mapping[str, Any], people: Mapping[str, int] | None) -> dict[str, int]:
    """How many people and judges answered; nothing if nobody was asked. row: of VERDICTS."""
    n = 0 if people is None else people.get(row["id"], 0)
    return {} if people is None else {"people": n, "judges": row["answers"] - n}


def _pack(
    rows: Rows, collection: Collection, folder: Path, records: Path, first: Mapping[int, int] | None = None
) -> Packed:
    """Write the fetched images of `rows` as tars into `folder`. first: bucket → number of its first tar."""
    rows = [row | {"changes": joined_steps(collection.requested(row["url"] or ""), row["changes"])} for row in rows]
    images = FetchedImages.open(collection.fetched, collection.members, {row["id"] for row in rows})
    strip = collection.settings.strip
    return pack(
        rows, images, folder=folder, records=records, shard_images=SHARD_IMAGES, strip=strip,
        executor=collection.executor, run_log=collection.run_log, first=first,
    )  # fmt: skip


def _append(
    rows: Rows, old: Mapping[str, Old], part: str, collection: Collection, why: Mapping[str, str], release: Path,
    records: Path,
) -> Appended:  # fmt: skip
    """The tars of the previous release, and new ones."""
    assert collection.previous is not None  # the settings say so

    def pack_new(new: Rows, first: Mapping[int, int]) -> Packed:
        return _pack(new, collection, release / part, records, first)

    settings = collection.settings
    return append_tars(
        rows, old, former=collection.previous, part=part, out=release, pack=pack_new, version=settings.version,
        why=why, purge=settings.purge,
    )  # fmt: skip


def _pack_unlabelled(
    collection: Collection, published: set[str], why: Mapping[str, str], release: Path, records: Path, tests: Tested
) -> tuple[int, Counter[str], Appended]:
    """Write the unlabelled images; returns their number, reason → photos left out for the tests, and their tars."""
    verdicts, settings = collection.verdicts, collection.settings
    unfit = verdicts.filter(pc.is_in(verdicts["verdict"], value_set=pa.array(NOT_FOR_TRAINING)))["id"].to_pylist()
    without = published | {*collection.withdrawn, *unfit}
    index = release / "unlabelled.parquet"
    copies = copies_of_tests(collection.embedded, tests, settings.copy_cosine)
    n, left = write_unlabelled(
        collection.members, list(collection.table), without, index, licences=settings.licences, tests=tests,
        copies=copies,
    )  # fmt: skip
    former = collection.previous if settings.append else None
    old = {} if former is None else unlabelled(former)
    if settings.unlabelled == "index":
        if former is not None and old:
            raise BadConfig(
                f"release.unlabelled is index, and {former.path} holds unlabelled images.",
                "Expected images: an appended release keeps all tars.",
            )
        return n, left, Appended(Packed([], {}))
    rows = pq.read_table(index).to_pylist()
    if former is None:
        part = Appended(_pack(rows, collection, release / "unlabelled", records / "unlabelled"))
    else:
        reasons = {i: COPY for i in old if i in copies}
        reasons |= left_out(tests, ((i, o.row["user"], o.row["source_sha256"]) for i, o in old.items()))
        reasons |= {**why, **dict.fromkeys(published, "labelled")}
        records /= "unlabelled"
        part = _append(rows, old, "unlabelled", collection, why=reasons, release=release, records=records)
    write_parquet(index, pa.Table.from_pylist(part.packed.rows, UNLABELLED))
    return n, left, part
