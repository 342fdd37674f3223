"""Verdicts and images of a run → a release: permitted images, selection, splits, tars, features, card."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Collection as Names
from collections.abc import Mapping, Sequence
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
from driftline.curate.core.outside.secrets import without_secrets
from driftline.curate.core.parsing import rows_of
from driftline.curate.embedding.features import features_with_store, keep_features
from driftline.curate.images.changes import joined as joined_steps
from driftline.curate.metadata.released_ids import check_ids, mapped, title_of
from driftline.curate.release.card_sections import missing_sections
from driftline.curate.release.composing.collection import Collection
from driftline.curate.release.composing.credit import for_credit
from driftline.curate.release.composing.permitted import (
    LICENCE,
    Rows,
    drop,
    ids_of,
    lookup,
    near_copy_groups,
    publishable,
)
from driftline.curate.release.drift import of_release
from driftline.curate.release.packing import SHARD_IMAGES, FetchedImages, Packed, pack, packed_images
from driftline.curate.release.pool import COPY, Tested, left_out
from driftline.curate.release.selection import all_splits, gaps_of, select, split_groups, without_images
from driftline.curate.release.unlabelled import ADDRESSES, UNLABELLED, copies_of_tests, reachable, write_unlabelled
from driftline.curate.release.versions.appending import Appended, Former, Old, append_tars, joined, labelled, unlabelled
from driftline.curate.release.versions.changelog import all_withdrawn, changes_since, check_version, with_parts
from driftline.curate.release.versions.identity import unlabelled_of
from driftline.curate.release.writer import write_release
from driftline.curate.retrieval.vector_store import vectors_of

FROM_TABLE = ("user", "title", "licence", "licence_url", "page_url", "url")
NOT_FOR_TRAINING = ("sensitive", "held_for_review")


def compose(
    collection: Collection, seed: int, provenance: Mapping[str, Any], out: Path
) -> tuple[int, int, Counter[str]]:
    """Write the release into `out`/release, and `out`/dropped.parquet; finished tars are not written again.

    Returns the numbers of accepted and published images, and of dropped images by reason.
    """
    settings, release, records = collection.settings, out / "release", out / "records"
    _check_card(collection)
    accepted: Rows = collection.verdicts.filter(pc.equal(collection.verdicts["verdict"], "kept")).to_pylist()
    if collection.previous is not None:
        check_ids(collection.previous.path, collection.previous.table["id"].to_pylist(), collection.names)
    appends = settings.append and collection.previous is not None
    former = Former.of(collection.previous, collection.own) if appends and collection.previous is not None else None
    classes = list(collection.classes) if former is None else former.classes(collection.classes)
    chosen, splits, copies, dropped, why = _choose(collection, accepted, classes, former, seed)
    own_ids, why = collection.own, dict(zip(mapped(why, collection.names), why.values(), strict=True))
    for row in chosen:  # what was drawn above does not depend on how ids are published
        row |= {name: collection.names.get(row[name], row[name]) for name in ("id", "group")}
    if former is None:
        tars = [Appended(_pack(chosen, collection, release / "shards", records))]
    else:
        old = labelled(former.release)
        tars = [_append(chosen, old, "shards", collection, why=why, release=release, records=records)]
    packed = tars[0].packed
    place = {row["id"]: i for i, row in enumerate(chosen)}  # the tars of an appended release have another order
    order = [place[row["id"]] for row in packed.rows]
    splits, copies = {name: [sides[i] for i in order] for name, sides in splits.items()}, copies[order]
    changes, withdrawn = None, {collection.names.get(i, i): held for i, held in collection.withdrawn.items()}
    if collection.previous is not None:
        changes = changes_since(collection.previous, packed.rows, classes, splits, withdrawn, why)
        check_version(settings.version, changes)
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
        n, counts, part = _pack_unlabelled(collection, labelled_ids, why, release, records, tests, seen)
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
        withdrawn=all_withdrawn(collection.previous, withdrawn, mapped(ids_of(accepted), collection.names), settings),
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


def _check_card(collection: Collection) -> None:
    """Raise BadConfig if the card must be complete and lacks a section."""
    settings = collection.settings
    if settings.strict and (missing := missing_sections(collection.judgement)):
        raise BadConfig(
            f"The card lacks the sections {', '.join(missing)}.",
            "Expected each as a paragraph that begins with its title in bold.",
            "Write them into the file release.judgement, or set release.strict: false.",
        )


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


def _choose(
    collection: Collection, accepted: Rows, classes: Sequence[str], former: Former | None, seed: int
) -> tuple[Rows, dict[str, list[str]], npt.NDArray[np.int64], dict[str, str], dict[str, str]]:
    """The N images that are published, with class, label, group and side; split → side of each; (N,) number of the
    group of near copies of each; and of the others what `publishable` returns."""
    settings, embedded = collection.settings, collection.embedded
    group = near_copy_groups(embedded, ids_of(accepted), settings)
    former_rows: Mapping[str, Any] = {} if former is None else former.rows
    left, dropped, why = publishable(accepted, group, collection, seed, former_rows)
    if former is not None:
        users = lookup(left, collection.table, ("user",))
        bridges = former.bridges((users[row["id"]] for row in left), group)
        left = drop(left, bridges, "links_groups", dropped, why)
    buckets, share = collection.buckets, settings.test_share
    if not (selected := select(left, [b["index"] for b in buckets], classes, settings, seed, former_rows)):
        raise Shortage(
            f"No accepted image may be published: {', '.join(sorted(set(dropped.values())))}.",
            "" if LICENCE not in dropped.values() else "Expected licences that permit copies.",
            "" if LICENCE not in dropped.values() else "If they are your own photos, set release.own: true.",
        )
    chosen = _with_metadata(selected, collection)
    drop(left, {row["id"] for row in left} - {row["id"] for row in chosen}, "surplus", dropped, why)
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
    copies = _numbers(chosen, near_copy_groups(embedded, ids_of(chosen), settings))
    return chosen, splits, copies, dropped, why


def _was_stripped(former: Former | None) -> bool:
    """Whether the tars that are kept hold no metadata, either."""
    return former is None or bool(former.release.facts["provenance"].get("stripped"))


def _numbers(rows: Rows, group: Mapping[str, str]) -> npt.NDArray[np.int64]:
    """(N,) number of the group of each row."""
    numbers = {g: i for i, g in enumerate(sorted({group[row["id"]] for row in rows}))}
    return np.array([numbers[group[row["id"]]] for row in rows], np.int64)


def _with_metadata(chosen: Sequence[Mapping[str, Any]], collection: Collection) -> Rows:
    """The rows with the metadata of each photo from earlier stages."""
    rows = [dict(row) for row in chosen]
    table = lookup(rows, collection.table, (*FROM_TABLE, "nickname", "path"))
    for id_ in table.keys() & collection.names.keys():
        table[id_]["title"] = title_of(table[id_]["title"], table[id_]["path"])
    of_members = ("uploaded", "width", "height", "sha256", "source_sha256", "changes")
    members = lookup(rows, collection.members, of_members)
    asked = pq.read_table(collection.asked)
    scores = {(i, c): s for i, c, s in rows_of(asked, "id", "concept", "score")}
    return [
        {
            **row,
            **{"stored_sha256" if k == "sha256" else k: v for k, v in members[row["id"]].items()},
            **{k: table[row["id"]][k] for k in FROM_TABLE},
            **_shown(table[row["id"]]),
            "creator": table[row["id"]]["nickname"],
            "score": scores[row["id"], row["concept"]],
            **_answered(row, collection.people),
        }
        for row in rows
    ]


def _shown(row: Mapping[str, Any]) -> dict[str, str | None]:
    """Its addresses for credits, without tokens; `url` is cut last, because it says in which size the photo came."""
    return {name: row[name] and without_secrets(row[name]) for name in ("page_url", "licence_url")}


def _answered(row: Mapping[str, Any], people: Mapping[str, int] | None) -> dict[str, int]:
    """How many people and judges answered; nothing if nobody was asked. row: of VERDICTS."""
    n = 0 if people is None else people.get(row["id"], 0)
    return {} if people is None else {"people": n, "judges": row["answers"] - n}


def _pack(
    rows: Rows, collection: Collection, folder: Path, records: Path, first: Mapping[int, int] | None = None
) -> Packed:
    """Write the fetched images of `rows` as tars into `folder`. first: bucket → number of its first tar."""
    rows = [row | {"changes": joined_steps(collection.requested(row["url"] or ""), row["changes"])} for row in rows]
    own_ids = set(mapped(ids_of(rows), collection.own))
    images = FetchedImages.open(collection.fetched, collection.members, own_ids).renamed(collection.names)
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
    collection: Collection,
    labelled: set[str],
    why: Mapping[str, str],
    release: Path,
    records: Path,
    tests: Tested,
    copies: Names[str],
) -> tuple[int, Counter[str], Appended]:
    """Write the unlabelled images; returns their number, reason → photos left out for the tests, and their tars."""
    verdicts, settings = collection.verdicts, collection.settings
    unfit = verdicts.filter(pc.is_in(verdicts["verdict"], value_set=pa.array(NOT_FOR_TRAINING)))["id"].to_pylist()
    without = labelled | {*collection.withdrawn, *unfit}
    index = release / "unlabelled.parquet"
    n, left = write_unlabelled(
        collection.members, list(collection.table), without, index, settings, tests, copies, collection.names
    )
    former = collection.previous if settings.append else None
    old = {} if former is None else unlabelled(former)
    if settings.unlabelled == "index":
        if former is not None and old:
            raise BadConfig(
                f"release.unlabelled is index, and {former.path} holds unlabelled images.",
                "Expected images: an appended release keeps all tars.",
            )
        return n, left, Appended(Packed([], {}))
    listed = [row | _shown(row) for row in pq.read_table(index).to_pylist()]
    rows = [row for row in listed if settings.permits(row["licence"], row["licence_url"])]
    others = [row for row in listed if not settings.permits(row["licence"], row["licence_url"])]
    if former is None:
        part = Appended(_pack(rows, collection, release / "unlabelled", records / "unlabelled"))
    else:
        labelled_ids = mapped(labelled, collection.names)
        reasons = dict.fromkeys(old.keys() & mapped(copies, collection.names), COPY)
        reasons |= left_out(tests, ((i, o.row["user"], o.row["source_sha256"]) for i, o in old.items()))
        reasons |= {**why, **dict.fromkeys(labelled_ids, "labelled")}
        records /= "unlabelled"
        part = _append(rows, old, "unlabelled", collection, why=reasons, release=release, records=records)
    table = for_credit(pa.Table.from_pylist([*part.packed.rows, *others], UNLABELLED), settings.columns)
    write_parquet(index, table := reachable(table, settings))
    return len(table), left, part


def _write_addresses(
    refused: Rows, collection: Collection, classes: Sequence[str], release: Path, tests: Tested, copies: Names[str]
) -> int:
    """List the addresses of labelled photos whose licence permits no copies, and no photo that would give a test away;
    returns their number."""
    rows = [
        row | {"id": collection.names.get(row["id"], row["id"]), "sha256": None, "class": row["concept"],
               "label": classes.index(row["concept"])}
        for row in _with_metadata(refused, collection)
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
