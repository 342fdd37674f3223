"""The unlabelled images of a release: collected but not labelled, for pre-training."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from curate.core.atomic_io import writing
from curate.release.format import METADATA

COLUMNS = (
    "id", "bucket", "uploaded", "sha256", "width", "height", "user", "creator", "title", "licence", "licence_url",
    "page_url", "url",
)  # fmt: skip
UNLABELLED = pa.schema([METADATA.field(name) for name in COLUMNS])  # the types are those of labelled images
QUERY = """
SELECT m.id, m.bucket, m.uploaded, m.sha256, m.width, m.height, t.user, t.nickname AS creator, t.title, t.licence,
       t.licence_url, t.page_url, t.url
FROM read_parquet(?) AS m JOIN read_parquet(?) AS t USING (id)
WHERE m.bucket IS NOT NULL AND m.id NOT IN (SELECT id FROM without)
  AND EXISTS (SELECT 1 FROM allowed WHERE starts_with(coalesce(t.licence, ''), allowed.licence)
                                       OR starts_with(coalesce(t.licence_url, ''), allowed.licence))
ORDER BY m.bucket, m.uploaded, m.id
"""


def write_unlabelled(
    members: Path, tables: list[Path], without: Collection[str], out: Path, licences: Sequence[str] = ()
) -> int:
    """Write `out`, a table of UNLABELLED, for the members of buckets whose id is not in `without`, by bucket and time.

    licences: prefixes of the names or addresses of allowed licences (empty: all). Returns the number of rows. Memory
    does not grow with the collection.
    """
    import duckdb

    n = 0
    with (
        duckdb.connect() as base,
        writing(out) as file,
        pq.ParquetWriter(file, UNLABELLED, compression="zstd") as writer,
    ):
        base.register("without", pa.table({"id": pa.array(sorted(without), pa.string())}))
        base.register("allowed", pa.table({"licence": pa.array(licences or [""], pa.string())}))
        result = base.sql(QUERY, params=[str(members), [str(t) for t in tables]])
        for batch in result.to_arrow_reader(65_536):
            table = pa.Table.from_batches([batch]).cast(UNLABELLED)
            writer.write_table(table)
            n += len(table)
    return n
