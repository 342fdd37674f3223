"""Which images a release has, with their metadata, groups and splits: decided before anything of it is written.

An image is not published if its owner withdrew it, if no licence permits it, or, where the settings say so, if it is a
near-duplicate.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.curate.core.errors import Shortage, without_secrets
from driftline.curate.core.executor import Executor
from driftline.curate.core.parsing import rows_of
from driftline.curate.core.run_log import RunLog
from driftline.curate.core.seeding import time_order
from driftline.curate.embedding.vector_store import parts, vectors_of
from driftline.curate.encoders import EncoderSpec
from driftline.curate.images.changes import alters
from driftline.curate.images.changes import joined as joined_steps
from driftline.curate.images.near_duplicates import copies_by_hash, group_pairs, pairs_by_cosine
from driftline.curate.metadata.released_ids import check_ids, title_of
from driftline.curate.release.changes import changes_since, check_version
from driftline.curate.release.format import Release
from driftline.curate.release.licences import no_derivatives
from driftline.curate.release.packing import FetchedImages, published
from driftline.curate.release.selection import Former, absences, all_splits, gaps_of, select, split_groups
from driftline.curate.release.settings import ReleaseSettings
from driftline.curate.store.database import Place

FROM_TABLE = ("user", "title", "licence", "licence_url", "page_url", "url")
OF_FILES = ("sha256", "uploaded", "licence", "licence_url")  # of the release before: no image is packed yet
WITHDRAWN = "withdrawn"  # by its owner
LICENCE = "licence"  # why a photo is not published, but its address may be
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class ReleaseInputs:
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
    kept: pa.Table | None = None
    """rows of metadata.parquet of images that the run has published before"""
    judgement: str | None = None
    """text of the card's judgement file"""
    backbones: Mapping[str, EncoderSpec] = field(default_factory=dict)
    """name → encoder of further features"""
    batch: int = 64
    """images per batch for these"""
    store: Place | None = None
    """where their vectors are kept; None: nowhere"""
    requested: Callable[[str], str] = lambda url: ""
    """address → in which size the source was asked for the photo, see `Source.requested`"""
    names: Mapping[str, str] = field(default_factory=dict)
    """id → id in the release, where it is another one: see `ids`"""
    people: Mapping[str, int] | None = None
    """id → answers of people that count; None: nobody was asked"""

    @cached_property
    def own(self) -> dict[str, str]:
        """Id in the release → id in the run, where it is another one."""
        return {released: id_ for id_, released in self.names.items()}

    @cached_property
    def gone(self) -> dict[str, bool]:
        """`withdrawn` by the ids in the release."""
        return {self.names.get(id_, id_): held for id_, held in self.withdrawn.items()}


@dataclass(frozen=True)
class Choice:
    """The images of a release."""

    accepted: Rows
    """the accepted images, with ids of the run"""
    rows: Rows
    """of the N that are published, with metadata, class, label, group and side; ids as in the release"""
    classes: list[str]
    """in the order of their labels"""
    splits: dict[str, list[str]]
    """split → (N,) sides"""
    copies: npt.NDArray[np.int64]
    """(N,) number of the group of near-duplicates of each"""
    dropped: dict[str, str]
    """id in the run of each other accepted image → reason"""


def choose(collection: ReleaseInputs, seed: int) -> Choice:
    """Choose the images of a release; writes nothing. Raises BadConfig for a version or classes that do not fit the
    previous release, Shortage if too few images may be published."""
    settings, previous, embedded = collection.settings, collection.previous, collection.embedded
    accepted: Rows = collection.verdicts.filter(pc.equal(collection.verdicts["decision"], "kept")).to_pylist()
    if previous is not None:
        check_ids(previous.path, previous.table["id"].to_pylist(), collection.names)
    former = Former.of(previous, collection.kept, collection.own)
    classes = former.classes(collection.classes)
    group = near_copy_groups(embedded, ids_of(accepted), settings)
    left, dropped = publishable(accepted, group, collection, seed, former.rows)
    if former.rows:
        users = lookup(left, collection.table, ("user",))
        bridges = former.bridges((users[row["id"]] for row in left), group)
        left = drop(left, bridges, "links_groups", dropped)
    buckets, share = collection.buckets, settings.test_share
    empty = Counter((row["bucket"], row["class"]) for id_, row in former.rows.items() if id_ in collection.withdrawn)
    if not (selected := select(left, [b["index"] for b in buckets], classes, settings, seed, former.rows, empty)):
        raise Shortage(
            f"No accepted image may be published: {', '.join(sorted(set(dropped.values())))}.",
            "" if LICENCE not in dropped.values() else "Expected licences that permit copies.",
            "" if LICENCE not in dropped.values() else "If they are your own photos, set release.own: true.",
        )
    chosen = with_metadata(selected, collection)
    drop(left, {row["id"] for row in left} - {row["id"] for row in chosen}, "surplus", dropped)
    groups = former.groups(chosen, split_groups(chosen, _numbers(chosen, group)))
    splits = all_splits(chosen, groups, settings, seed, partial(former.sides, chosen))
    named = {bucket["index"]: str(bucket["name"]) for bucket in buckets}
    counts = Counter((named[row["bucket"]], row["concept"]) for row in chosen)
    for gap in absences(counts, list(named.values()), classes) + gaps_of(chosen, groups, splits, share):
        collection.run_log.say(gap)
    names = {row["id"]: row["id"] for row in chosen}  # a withdrawn photo names no group
    for id_, group_name in sorted(zip(ids_of(chosen), groups, strict=True)):
        names.setdefault(group_name, id_)
    for i, row in enumerate(chosen):
        row |= {"class": row["concept"], "label": classes.index(row["concept"]), "group": names[groups[i]]}
        row["split"] = splits["split_0"][i]
    # the card counts near-duplicates among published images only
    copies = _numbers(chosen, near_copy_groups(embedded, ids_of(chosen), settings))
    for row in chosen:  # what was drawn above does not depend on how ids are published
        row |= {name: collection.names.get(row[name], row[name]) for name in ("id", "group")}
    if previous is not None:
        then = {row["id"]: row for row in previous.table.select(["id", *OF_FILES]).to_pylist()}
        same_files = [{"sha256": "", **row, **then.get(row["id"], {})} for row in chosen]
        check_version(settings.version, changes_since(previous, same_files, classes, splits, collection.gone))
    return Choice(accepted, chosen, classes, splits, copies, dropped)


def _numbers(rows: Rows, group: Mapping[str, str]) -> npt.NDArray[np.int64]:
    """(N,) number of the group of each row."""
    numbers = {g: i for i, g in enumerate(sorted({group[row["id"]] for row in rows}))}
    return np.array([numbers[group[row["id"]]] for row in rows], np.int64)


def with_metadata(chosen: Sequence[Mapping[str, Any]], collection: ReleaseInputs) -> Rows:
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
            **shown(table[row["id"]]),
            "creator": table[row["id"]]["nickname"],
            "score": scores[row["id"], row["concept"]],
            **_answered(row, collection.people),
        }
        for row in rows
    ]


def shown(row: Mapping[str, Any]) -> dict[str, str | None]:
    """Its addresses for credits, without tokens; `url` is cut last, because it says in which size the photo came."""
    return {name: row[name] and without_secrets(row[name]) for name in ("page_url", "licence_url")}


def _answered(row: Mapping[str, Any], people: Mapping[str, int] | None) -> dict[str, int]:
    """How many people and judges answered; nothing if nobody was asked. row: of VERDICTS."""
    n = 0 if people is None else people.get(row["id"], 0)
    return {} if people is None else {"people": n, "judges": row["answers"] - n}


def publishable(
    accepted: Rows, group: Mapping[str, str], collection: ReleaseInputs, seed: int, first: Container[str] = ()
) -> tuple[Rows, dict[str, str]]:
    """The accepted images that may be published, and id → reason of the others.

    first: ids of the release before, which go before their near-duplicates.
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
    """id → the id that names its group of near-duplicates. embedded: output of the stage embed."""
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


def _unalterable(rows: Rows, licences: Mapping[str, Sequence[str]], collection: ReleaseInputs) -> set[str]:
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
