"""The unlabelled images of a release, for pre-training: collected but not labelled.

No test image of any split is among them, no photo by its uploader, no near-duplicate of it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import writing
from driftline.curate.core.errors import without_secrets
from driftline.curate.core.late import duckdb
from driftline.curate.core.parsing import rows_of
from driftline.curate.embedding.vector_store import parts, vectors_of
from driftline.curate.images.near_duplicates import SURE_BITS, near_stored
from driftline.curate.metadata.released_ids import title_of
from driftline.curate.metadata.schema import replaced
from driftline.curate.release.format import METADATA, Release
from driftline.curate.release.settings import ReleaseSettings

TEST, UPLOADER, COPY = "test_image", "uploader_of_tests", "near_copy_of_tests"  # why a photo is left out
TO_CUT = r"[?#]|//[^/]*@"  # addresses with something that may not be published
BLOCK = 2048  # vectors that are compared at once
COLUMNS = (
    "id", "bucket", "uploaded", "sha256", "source_sha256", "changes", "width", "height", "user", "creator", "title",
    "licence", "licence_url", "page_url", "url",
)  # fmt: skip
UNLABELLED = pa.schema([METADATA.field(name) for name in COLUMNS])  # the types are those of labelled images
ADDRESSES = pa.schema([METADATA.field(name) for name in (*COLUMNS[:2], "class", "label", *COLUMNS[2:])])
QUERY = """
SELECT m.id, m.bucket, m.uploaded, NULL AS sha256, m.source_sha256, m.changes, m.width, m.height, t.user,
       t.nickname AS creator, t.title, t.licence, t.licence_url, t.page_url, t.url, t.path
FROM read_parquet(?) AS m JOIN read_parquet(?) AS t USING (id)
WHERE m.bucket IS NOT NULL AND m.id NOT IN (SELECT id FROM without)
  AND EXISTS (SELECT 1 FROM allowed WHERE starts_with(coalesce(t.licence, ''), allowed.licence)
                                       OR starts_with(coalesce(t.licence_url, ''), allowed.licence))
ORDER BY m.bucket, m.uploaded, m.id
"""


@dataclass(frozen=True)
class Tested:
    """The images that at least one split of a release tests."""

    ids: frozenset[str]
    """of the images"""
    users: frozenset[str]
    """uploaders of them"""
    digests: frozenset[str]
    """SHA-256 of their files, as published and as fetched"""
    bits: int = SURE_BITS
    """near-duplicates of them differ in at most so many bits of 64"""

    @classmethod
    def of(
        cls, rows: Sequence[Mapping[str, Any]], splits: Mapping[str, Sequence[str]], bits: int = SURE_BITS
    ) -> "Tested":
        """rows: N dicts with id, user, sha256, source_sha256. splits: name → (N,) "train" or "test"."""
        tested = [row for i, row in enumerate(rows) if any(sides[i] == "test" for sides in splits.values())]
        return cls(
            frozenset(row["id"] for row in tested),
            frozenset(row["user"] for row in tested if row.get("user")),
            frozenset(row[name] for row in tested for name in ("sha256", "source_sha256") if row.get(name)),
            min(bits, SURE_BITS),
        )

    @classmethod
    def of_release(cls, release: Release) -> "Tested":
        """Of all splits of a release."""
        rows = release.table.select(["id", "user", "sha256", "source_sha256"]).to_pylist()
        rule = release.facts["provenance"].get("near_copies") or {}
        splits = {name: release.table[name].to_pylist() for name in release.facts["splits"]}
        return cls.of(rows, splits, rule.get("copy_bits", SURE_BITS))

    def why(self, id_: str, user: str | None, sha256: str | None) -> str | None:
        """Why a photo may not be learned from, by what is known without its pixels; None if it may."""
        if id_ in self.ids:
            return TEST
        if user in self.users:
            return UPLOADER
        return COPY if sha256 in self.digests else None


def left_out(tests: Tested, rows: Iterable[Sequence[Any]]) -> dict[str, str]:
    """Id → why it may not be learned from. rows: (id, user, sha256)."""
    reasons = ((id_, tests.why(id_, user, sha256)) for id_, user, sha256 in rows)
    return {id_: reason for id_, reason in reasons if reason is not None}


def copies_of_tests(embedded: Path, tests: Tested, cosine: float | None = None) -> set[str]:
    """Ids of the photos of an embed stage's folder that are near-duplicates of tests: by their perceptual hashes, or by
    vectors of at least this cosine. The tests are among them."""
    stored, close = [np.zeros(0, np.uint64)], set()
    for table, _ in parts(embedded):
        tested = pc.is_in(table["id"], value_set=pa.array(sorted(tests.ids), pa.string()))
        stored.append(table["phash"].filter(tested).drop_null().to_numpy().astype(np.uint64))
    hashes = np.concatenate(stored)
    vectors = vectors_of(embedded, [] if cosine is None else sorted(tests.ids)).astype(np.float32).T
    for table, file in parts(embedded):
        near, hashed = np.zeros(len(table), bool), np.flatnonzero(pc.is_valid(table["phash"]).to_numpy())
        near[hashed] = near_stored(table["phash"].drop_null().to_numpy().astype(np.uint64), hashes, tests.bits)
        for low in range(0, 0 if cosine is None else len(table), BLOCK):
            scores = file.map()[low : low + BLOCK].astype(np.float32) @ vectors
            near[low : low + BLOCK] |= scores.max(1, initial=-1) >= cosine
        close |= set(table["id"].filter(pa.array(near)).to_pylist())
    return close


def write_unlabelled(
    members: Path,
    tables: list[Path],
    without: Collection[str],
    out: Path,
    settings: ReleaseSettings,
    tests: Tested,
    copies: Collection[str] = (),
    names: Mapping[str, str] = MappingProxyType({}),
) -> tuple[int, Counter[str]]:
    """Write `out`, a table of UNLABELLED, for the members of buckets whose id is not in `without`, by bucket and time.

    sha256 is null: that of published bytes is known when they are packed; `changes` is what fetch did.
    Addresses and users are as they were if the images are packed next. tests: of every split; photos by
    their uploaders and `copies`, the ids of their near-duplicates, are left out. Returns the number of rows, and
    reason →
    number of photos left out. names: id → id in the release, where it is another one. Memory does not grow with the
    collection.
    """
    n, left = 0, Counter[str]()
    with (
        duckdb.connect() as base,
        writing(out) as file,
        pq.ParquetWriter(file, UNLABELLED, compression="zstd") as writer,
    ):
        base.register("without", pa.table({"id": pa.array(sorted(without), pa.string())}))
        base.register("allowed", pa.table({"licence": pa.array(settings.licences or [""], pa.string())}))
        result = base.sql(QUERY, params=[str(members), [str(t) for t in tables]])
        for batch in result.to_arrow_reader(65_536):
            table = pa.Table.from_batches([batch]).cast(UNLABELLED.append(pa.field("path", pa.string())))
            why = left_out(tests, rows_of(table, "id", "user", "source_sha256"))
            why |= {i: COPY for i in table["id"].to_pylist() if i in copies and i not in why}
            left.update(why.values())
            table = table.filter(pc.invert(pc.is_in(table["id"], value_set=pa.array(list(why), pa.string()))))
            table = _released(table, names)
            if settings.unlabelled == "index":
                table = reachable(for_credit(table, settings.columns), settings)
            writer.write_table(table)
            n += len(table)
    return n, left


def reachable(table: pa.Table, settings: ReleaseSettings) -> pa.Table:
    """The rows of a table of UNLABELLED with an address, or a licence that permits copies: others help nobody."""
    with_address = pc.or_(pc.is_valid(table["url"]), pc.is_valid(table["page_url"])).to_pylist()
    licences = zip(with_address, *(table[name].to_pylist() for name in ("licence", "licence_url")), strict=True)
    return table.filter(pa.array([there or settings.permits(*licence) for there, *licence in licences], pa.bool_()))


def _released(table: pa.Table, names: Mapping[str, str]) -> pa.Table:
    """A table of UNLABELLED, path included, as it is published."""
    rows = table.to_pylist() if names else []
    for row in rows:
        if row["id"] in names:
            row |= {"id": names[row["id"]], "title": title_of(row["title"], row["path"])}
    return (pa.Table.from_pylist(rows, table.schema) if rows else table).select(COLUMNS)


def for_credit(table: pa.Table, asked: Collection[str]) -> pa.Table:
    """A table with the columns user, url, page_url and licence_url as it is published; tokens of addresses are cut.

    asked: of "user" and "url"; without it the uploader's id is null, and so is an address with a query.
    """
    if "user" not in asked:
        table = replaced(table, "user", pa.nulls(len(table), pa.string()))
    for name in ("url", "page_url", "licence_url"):
        if pc.any(pc.match_substring_regex(table[name], TO_CUT)).as_py():
            cut = [None if text is None else without_secrets(text) for text in table[name].to_pylist()]
            if name == "url" and "url" not in asked:
                cut = [None if text is None or "?" in text else text for text in cut]
            table = replaced(table, name, pa.array(cut, pa.string()))
    return table
