"""Verdicts whose answers were deleted: what a run keeps of people's answers after `driftline forget`.

A row is of a photo, by its SHA-256, and of a concept of the page that people read: the verdict and its counts, nothing
of a single answer or person. It stands until enough new answers to the photo are there, or the page changes.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import json_value, write_parquet
from driftline.curate.core.parsing import rows_of
from driftline.curate.foreign.tables import read_parquet
from driftline.curate.validation.answers import FORGOTTEN
from driftline.curate.validation.answers.stored import page_changes
from driftline.curate.validation.answers.verdicts import VERDICTS

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
    it, how many `answers` of how many `people` to how many `images`, and their `agreement`."""
    path = root / FORGOTTEN
    if not path.is_file():
        return []
    entries: list[dict[str, Any]] = json_value((pq.read_schema(path).metadata or {}).get(KEY, b"[]"))
    return entries


def briefly(root: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The deletions of a run folder without their agreement: as plain data, and a line each."""
    entries = [{k: one[k] for k in ("date", "release", "answers", "people", "images")} for one in deletions(root)]
    return entries, [
        f"answers deleted on {one['date']}, after release {one['release']}: {one['answers']:,} of "
        f"{one['people']:,} people to {one['images']:,} images; their verdicts stay"
        for one in entries
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
    fits = {text for text in table["options"].to_pylist() if not page_changes(json_value(text), options)}
    rows = {
        (id_, row["concept"]): row
        for row in table.to_pylist()
        if row["options"] in fits
        for id_ in ids.get(row["sha256"], ())
    }
    return Standing(rows, deletions(root))


def _rows(root: Path) -> pa.Table:
    return read_parquet(
        root / FORGOTTEN, COLUMNS.names, "Restore it from a copy: without it, images are asked about again."
    )


def freeze(
    root: Path,
    entry: Row,
    verdicts: pa.Table,
    people: Mapping[str, int],
    digests: Mapping[str, str],
    options: Mapping[str, str],
) -> None:
    """Write what stays before answers are deleted, beside what stands already.

    entry: see `deletions`. verdicts: of everything asked. people: id → answers of people. digests: id → SHA-256.
    options: see `standing`.
    """
    before = _rows(root).to_pylist() if (root / FORGOTTEN).is_file() else []
    text = json.dumps(dict(options), sort_keys=True)
    rows = {(row["sha256"], row["concept"], row["options"]): row for row in before}
    for row in verdicts.to_pylist():
        key = digests.get(row["id"], ""), row["concept"], text
        if row["verdict"] == "pending" or not key[0]:
            continue
        n = people.get(row["id"]) or rows.get(key, {}).get("people", 0)
        rows[key] = dict(zip(COLUMNS.names, (*key, *(row[name] for name in COUNTS), n), strict=True))
    table = pa.Table.from_pylist([rows[key] for key in sorted(rows)], COLUMNS)
    entries = json.dumps([*deletions(root), dict(entry)])
    write_parquet(root / FORGOTTEN, table.replace_schema_metadata({KEY: entries}))
