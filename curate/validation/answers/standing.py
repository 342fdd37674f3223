"""Verdicts whose answers were deleted: what a run keeps of people's answers after `driftline forget`.

A row is of a photo, by its SHA-256, and of a concept of the page that people read: the verdict and its counts, nothing
of a single answer or person. It stands until enough new answers to the photo are there, or the page changes.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import json_value, write_parquet
from driftline.curate.core.outside.tables import read_parquet, readable
from driftline.curate.core.parsing import rows_of
from driftline.curate.retrieval.settings import BACKGROUND
from driftline.curate.store.answers import page_changes
from driftline.curate.validation.answers import FORGOTTEN
from driftline.curate.validation.answers.verdicts import VERDICTS, tally
from driftline.curate.validation.settings import ValidationSettings

KEY = b"deleted"  # in the metadata of its schema: a list of what was deleted when, as JSON
COUNTS = ("verdict", "votes", "answers", "agreement", "sensitive")  # columns of VERDICTS
COLUMNS = pa.schema(
    [
        ("sha256", pa.string()),
        ("concept", pa.string()),
        ("options", pa.string()),
        *(VERDICTS.field(name) for name in COUNTS),
        ("people", pa.int32()),
    ]
)
PEOPLE = pa.schema([("id", pa.string()), ("people", pa.int32())])
Pair = tuple[str, str]  # id, concept
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Standing:
    """The verdicts that stand for the photos and the page of a run."""

    rows: Mapping[Pair, Row] = field(default_factory=dict)
    """(id, concept) → COUNTS, and `people`: how many of the answers were of people"""
    deleted: Sequence[Row] = ()
    """what was deleted, the oldest first; see `deletions`"""

    def answered(self) -> set[str]:
        """Ids that people answered."""
        return {id_ for (id_, _), row in self.rows.items() if row["people"]}

    def covers(self, item: Row) -> bool:
        """Whether the verdict of an item (id, concept) stands."""
        return (item["id"], item["concept"]) in self.rows

    def guarantee(self) -> dict[str, list[Any]]:
        """What `guarantee.json` said before: the table of `judges`, and its `cells`."""
        before = [entry["guarantee"] for entry in self.deleted if entry.get("guarantee")]
        return dict(before[-1]) if before else {"judges": [], "cells": []}

    def people(self, items: Sequence[Row]) -> pa.Table:
        """Id and `people` of the items whose verdict stands."""
        pairs = sorted({(i["id"], self.rows[i["id"], i["concept"]]["people"]) for i in items if self.covers(i)})
        return pa.table({"id": [id_ for id_, _ in pairs], "people": [n for _, n in pairs]}, PEOPLE)

    def merged(self, items: Sequence[Row], verdicts: pa.Table) -> pa.Table:
        """Verdicts of all items, in their order: those of `verdicts`, and of the other items those that stand."""
        if not self.rows:
            return verdicts
        new = {(row["id"], row["concept"]): row for row in verdicts.to_pylist()}
        pairs = [(item["id"], item["concept"]) for item in items]
        rows = [
            new.get(pair) or {**item, **{name: self.rows[pair][name] for name in COUNTS}}
            for pair, item in zip(pairs, items, strict=True)
        ]
        return pa.Table.from_pylist(rows, schema=VERDICTS)


def deletions(root: Path) -> list[dict[str, Any]]:
    """What was deleted in a run folder, the oldest first: `time` (seconds since the epoch), `date`, `release` before
    it, how many `answers` of how many `people` to how many `images`, their `agreement`, `cells`: what `cells_of`
    counts, and the names of the `batches` that had answers; `person`: whether one person was forgotten, whose answers
    stay as votes."""
    path = root / FORGOTTEN
    if not path.is_file():
        return []
    entries: list[dict[str, Any]] = json_value((pq.read_schema(path).metadata or {}).get(KEY, b"[]"))
    return entries


def briefly(root: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The deletions of a run folder without their counts: as plain data, and a line each."""
    entries = [{k: one[k] for k in ("date", "release", "answers", "people", "images")} for one in deletions(root)]
    return entries, [
        f"one person forgotten on {one['date']}, after release {one['release']}: {one['answers']:,} answers to "
        f"{one['images']:,} images are votes of nobody"
        if one.get("person")
        else f"answers deleted on {one['date']}, after release {one['release']}: {one['answers']:,} of "
        f"{one['people']:,} people to {one['images']:,} images; their verdicts stay"
        for one in deletions(root)
    ]


def standing(root: Path, photos: pa.Table, options: Mapping[str, str]) -> Standing:
    """What stands in a run folder. photos: id and sha256 of the run's photos. options: concept → fingerprint of what
    people read about it now. Raises BadInput for a damaged file, MissingFile without one."""
    table = _rows(root)
    ids = defaultdict[str, list[str]](list)
    for id_, digest in rows_of(
        photos.filter(pc.is_in(photos["sha256"], value_set=table["sha256"].combine_chunks())), "id", "sha256"
    ):
        ids[digest].append(id_)
    pages = set(table["options"].to_pylist())
    fits = {text for text in pages if not page_changes(json_value(text), options)}
    rows = {
        (id_, row["concept"]): row
        for row in table.to_pylist()
        if row["options"] in fits
        for id_ in ids.get(row["sha256"], ())
    }
    return Standing(rows, deletions(root))


def _rows(root: Path) -> pa.Table:
    way_out = "Restore it from a copy: without it, images are asked about again."
    if (root / FORGOTTEN).is_file():
        with readable(root / FORGOTTEN, "Expected a Parquet file.", way_out):
            if not pq.read_metadata(root / FORGOTTEN).num_rows:  # only single people were forgotten
                return COLUMNS.empty_table()
    return read_parquet(root / FORGOTTEN, COLUMNS.names, way_out)


def keep_verdicts(
    root: Path,
    entry: Row,
    verdicts: pa.Table,
    answers: pa.Table,
    digests: Mapping[str, str],
    options: Mapping[str, str],
    settings: ValidationSettings,
) -> None:
    """Write what stays before answers are deleted, beside what stands already.

    entry: see `deletions`. verdicts: of everything asked. answers: table of ANSWERS. digests: id → SHA-256. options:
    see `standing`. An answer is about every concept of its page: a photo gets a verdict for each.
    """
    before = _rows(root).to_pylist() if (root / FORGOTTEN).is_file() else []
    text = json.dumps(dict(options), sort_keys=True)
    rows = {(row["sha256"], row["concept"], row["options"]): row for row in before}
    counts = people_of(answers)
    buckets = dict(rows_of(verdicts, "id", "bucket"))
    pairs = [
        {"id": id_, "bucket": buckets.get(id_, -1), "concept": concept}
        for id_ in counts
        for concept in (*options, BACKGROUND)
    ]
    for row in [*tally(pairs, answers, settings).to_pylist(), *verdicts.to_pylist()]:
        key = digests.get(row["id"], ""), row["concept"], text
        if row["verdict"] == "pending" or not key[0]:
            continue
        new, old = counts.get(row["id"], 0), rows.get(key, {}).get("people", 0)
        people = new if new >= settings.workers else old
        rows[key] = dict(zip(COLUMNS.names, (*key, *(row[name] for name in COUNTS), people), strict=True))
    keep_record(root, entry, pa.Table.from_pylist([rows[key] for key in sorted(rows)], COLUMNS))


def keep_record(root: Path, entry: Row, table: pa.Table | None = None) -> None:
    """Add an entry of `deletions`. table: what stands now; None: what stood before."""
    if table is None:
        table = _rows(root) if (root / FORGOTTEN).is_file() else COLUMNS.empty_table()
    entries = json.dumps([*deletions(root), dict(entry)])
    write_parquet(root / FORGOTTEN, table.replace_schema_metadata({KEY: entries}))


def people_of(answers: pa.Table) -> dict[str, int]:
    """Id → answers that count. answers: table of ANSWERS, or its columns id and fault."""
    return Counter(id_ for id_, fault in rows_of(answers, "id", "fault") if fault is None)


def cells_of(verdicts: pa.Table) -> Iterator[dict[str, Any]]:
    """Of each concept and bucket: images `asked`, `accepted`, their `answers`, and the mean `agreement` of an image's
    answers."""
    cells = defaultdict[tuple[str, int], list[Row]](list)
    for row in verdicts.to_pylist():
        cells[row["concept"], row["bucket"]].append(row)
    for (concept, bucket), rows in sorted(cells.items()):
        shares = [row["agreement"] for row in rows if row["agreement"] is not None]
        yield {
            "concept": concept, "bucket": bucket, "asked": len(rows),
            "accepted": sum(row["verdict"] == "kept" for row in rows), "answers": sum(row["answers"] for row in rows),
            "agreement": round(sum(shares) / len(shares), 4) if shares else None,
        }  # fmt: skip
