"""Verdicts and images of a run → a release: selection, splits, tars, features, card; its checksums are written last."""

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

from driftline.curate.core.atomic_io import csv_text, sha256_file, write_array, write_json, write_parquet, write_text
from driftline.curate.embedding.features import encoder_name, features_with_store
from driftline.curate.embedding.vector_store import vectors_of
from driftline.curate.foreign.escaping import no_formula
from driftline.curate.images.changes import joined as joined_steps
from driftline.curate.images.near_duplicates import copy_report
from driftline.curate.metadata.released_ids import mapped
from driftline.curate.metadata.withdrawals import PUBLISHED
from driftline.curate.release.changes import all_withdrawn, changes_markdown, changes_since, check_version
from driftline.curate.release.choice import LICENCE, ReleaseInputs, Rows, choose, ids_of, shown, with_metadata
from driftline.curate.release.croissant import croissant_tars
from driftline.curate.release.data_card import card
from driftline.curate.release.drift import of_release
from driftline.curate.release.format import FORMAT, METADATA
from driftline.curate.release.identity import FILE as MANIFEST
from driftline.curate.release.identity import bucket_identities, unlabelled_of
from driftline.curate.release.licences import NOT_STATED, licence_list
from driftline.curate.release.packing import SHARD_IMAGES, FetchedImages, Packed, pack, packed_images
from driftline.curate.release.selection import represented
from driftline.curate.release.settings import ReleaseSettings
from driftline.curate.release.unlabelled import (
    ADDRESSES,
    UNLABELLED,
    Tested,
    copies_of_tests,
    for_credit,
    reachable,
    write_unlabelled,
)
from driftline.curate.store.database import open_store
from driftline.curate.store.photos import keep_vectors

NOT_FOR_TRAINING = ("sensitive", "held_for_review")


def compose(
    collection: ReleaseInputs, seed: int, provenance: Mapping[str, Any], out: Path
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
        if collection.store is not None:
            with open_store(collection.store.folder) as store:
                keep_vectors(store, f"{encoder_name(spec.load(), collection.batch)} {kind}", npy, sources)
    shutil.rmtree(records, ignore_errors=True)
    table = pa.table({"id": pa.array(list(dropped), pa.string()), "reason": pa.array(dropped.values(), pa.string())})
    write_parquet(out / "dropped.parquet", table)
    return len(chosen) + len(dropped), len(chosen), Counter(dropped.values())


def _further_features(
    collection: ReleaseInputs, release: Path, packed: Packed, sources: Sequence[str], kind: str
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


def _pack(rows: Rows, collection: ReleaseInputs, folder: Path, records: Path) -> Packed:
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
    collection: ReleaseInputs, labelled: set[str], release: Path, records: Path, tests: Tested, copies: Names[str]
) -> tuple[int, Counter[str], Packed]:
    """Write the unlabelled images; returns their number, reason → photos left out for the tests, and their tars."""
    verdicts, settings = collection.verdicts, collection.settings
    unfit = verdicts.filter(pc.is_in(verdicts["decision"], value_set=pa.array(NOT_FOR_TRAINING)))["id"].to_pylist()
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
    refused: Rows, collection: ReleaseInputs, classes: Sequence[str], release: Path, tests: Tested, copies: Names[str]
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
        f"{len(refused):,} photos have no licence that permits copies: {len(table):,} are listed in urls.parquet. "
        "release.own publishes all, release.licences says which."
    )
    if len(table):
        write_parquet(release / "urls.parquet", table)
    return len(table)


QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


def write_release(
    packed: Packed,
    vectors: Mapping[str, npt.NDArray[np.float16]],
    buckets: Sequence[Mapping[str, Any]],
    classes: Sequence[str],
    splits: Mapping[str, Sequence[str]],
    provenance: Mapping[str, Any],
    out: Path,
    settings: ReleaseSettings,
    copies: npt.NDArray[np.int64] | None = None,
    changes: Mapping[str, Any] | None = None,
    withdrawn: Sequence[tuple[str, str, str]] = (),
    unlabelled: tuple[int, Mapping[str, int], Packed] | None = None,
) -> dict[str, Any]:
    """Write all files of a release except the tars in `out/shards`; returns the content of `release.json`.

    packed: its N rows have the known columns of METADATA. vectors: name → (N, D) float16, in the order of the rows, as
    are `splits` and `copies` (groups of near-duplicates; None: not searched). changes: from `changes_since`, if there
    is a previous release. withdrawn: rows of WITHDRAWN.csv. unlabelled: number of
    images in `unlabelled.parquet`, reason → photos that are not there because of the tests, and what tars in
    `out/unlabelled` hold. SHA256SUMS is written last.
    """
    rows, further = packed.rows, Packed([], {}) if unlabelled is None else unlabelled[2]
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in METADATA]
    table = for_credit(pa.Table.from_arrays(columns, schema=METADATA), settings.columns)
    for name, sides in splits.items():
        table = table.append_column(name, pa.array(sides, pa.string()))
    write_parquet(out / "metadata.parquet", table)
    for name, matrix in vectors.items():
        write_array(out / "features" / f"{name}.npy", matrix)
    classes_in: dict[int, Counter[str]] = {b["index"]: Counter() for b in buckets}
    for row in rows:
        classes_in[row["bucket"]][row["class"]] += 1
    shown = {"id": [r["id"] for r in rows], "bucket": [r["bucket"] for r in rows], "class": [r["class"] for r in rows]}
    facts = {
        "format": FORMAT,
        "name": settings.name,
        "version": settings.version,
        "images": len(rows),
        "classes": list(classes),
        "buckets": [dict(b) for b in buckets],
        "per_class": {str(b["index"]): dict(sorted(classes_in[b["index"]].items())) for b in buckets},
        "splits": list(splits),
        "test_images": {name: list(sides).count("test") for name, sides in splits.items()},
        "represented": represented(
            [{"bucket": r["bucket"], "concept": r["class"]} for r in rows],
            [row.get("group") or row["id"] for row in rows],
            splits,
            settings.test_share,
        ),
        "features": list(vectors),
        "scores": score_quantiles(rows),
        "near_copies": None if copies is None else copy_report(copies, shown | dict(splits)),
        "licences": dict(sorted(Counter(r.get("licence") or NOT_STATED for r in rows).items())),
        "licence_list": licence_list((r.get("licence"), r.get("licence_url")) for r in rows),
        "file_changes": dict(sorted(Counter(row["changes"] for row in [*rows, *further.rows]).items())),
        "answers": answers_given(rows),
        "changes": changes,
        "withdrawn": len(withdrawn),
        "unlabelled": None if unlabelled is None else unlabelled[0],
        "unlabelled_left_out": {} if unlabelled is None else dict(sorted(unlabelled[1].items())),
        "provenance": dict(provenance),
    }
    write_json(out / "release.json", facts)
    write_json(out / MANIFEST, bucket_identities(facts, table, vectors, unlabelled_of(out, held=True)))
    write_text(out / "ATTRIBUTION.csv", attribution([*rows, *further.rows]))
    write_text(out / "WITHDRAWN.csv", csv_text(PUBLISHED, withdrawn))
    if changes is not None:
        write_text(out / "CHANGES.md", changes_markdown(changes, settings.version))
    tars = {f"shards/{name}": digest for name, digest in packed.sums.items()}
    write_croissant(out, facts, table, tars)
    write_text(out / "README.md", card(facts))
    seal(out, tars | {f"unlabelled/{name}": digest for name, digest in further.sums.items()})
    return facts


def write_croissant(out: Path, facts: Mapping[str, Any], table: pa.Table, tars: Mapping[str, str]) -> None:
    """Write croissant.json of a release in tars. table: metadata.parquet. tars: path → SHA-256."""
    kinds = {field.name: str(field.type) for field in table.schema}
    metadata = out / "metadata.parquet"
    sizes = [(name, digest, (out / name).stat().st_size) for name, digest in tars.items()]
    place = sha256_file(metadata), metadata.stat().st_size
    extensions = sorted({member.rpartition(".")[2] for member in table["member"].to_pylist()})
    write_json(out / "croissant.json", croissant_tars(facts, kinds, place, sizes, extensions))


def score_quantiles(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Class → QUANTILES of the retrieval scores of its images."""
    scores: dict[str, list[float]] = {}
    for row in rows:
        if row.get("score") is not None:
            scores.setdefault(row["class"], []).append(row["score"])
    return {name: [round(float(q), 4) for q in np.quantile(scores[name], QUANTILES)] for name in sorted(scores)}


def attribution(rows: Sequence[Mapping[str, Any]]) -> str:
    """The text of ATTRIBUTION.csv: author, source, licence and changes of each image, as Creative Commons licences
    require.

    Cells that a spreadsheet would run as a formula begin with an apostrophe.
    """
    columns = ("id", "title", "creator", "page_url", "licence", "licence_url", "sha256", "changes")
    return csv_text(columns, ([no_formula(row.get(c) or "") for c in columns] for row in rows))


def answers_given(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Who answered ("people", "judges") → answers an image → images; empty if nobody was asked."""
    counts = {who: Counter(row[who] for row in rows if row.get(who) is not None) for who in ("people", "judges")}
    return {who: {str(n): of[n] for n in sorted(of)} for who, of in counts.items() if any(of)}


def seal(folder: Path, computed: Mapping[str, str] | None = None) -> None:
    """Write SHA256SUMS of every file in `folder`. computed: name → checksum that need not be computed again."""
    names = sorted(
        p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file() and p.name != "SHA256SUMS"
    )
    sums = ((name, (computed or {}).get(name) or sha256_file(folder / name)) for name in names)
    write_text(folder / "SHA256SUMS", "".join(f"{digest}  {name}\n" for name, digest in sums))
