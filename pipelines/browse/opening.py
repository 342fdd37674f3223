"""The photos of a run folder or a release: of a run everything that ingest read, also what was dropped, and why."""

import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock

import duckdb
import pyarrow as pa

from driftline.curate.core.atomic_io import read_json
from driftline.curate.core.errors import MissingFile
from driftline.curate.embedding.vector_store import VectorStore
from driftline.curate.foreign.names import inside
from driftline.curate.images.local_files import read_local
from driftline.curate.images.shards import Reader
from driftline.curate.metadata.released_ids import released_ids
from driftline.curate.metadata.withdrawals import address_digest, withdrawals
from driftline.curate.release import Release
from driftline.pipelines.browse.collection import Collection, Row, Source
from driftline.pipelines.stages.base import Context
from driftline.pipelines.stages.filter import FilterTable
from driftline.pipelines.stages.photos import photos, trace
from driftline.pipelines.stages.state import done_of, folder_of
from driftline.pipelines.web.rendering import labels

LARGEST = 64 << 20  # bytes of a local file that is shown
# The first stage that dropped a photo gives the reason. A record that filter dropped may have the id of a photo that is
# kept: nothing that later stages know of this id is its own.
QUERY = r"""
WITH late AS (SELECT row, any_value(reason) AS reason FROM drops WHERE stage = 'filter' GROUP BY row
), lost AS (
  SELECT id, min_by(stage || ': ' || reason, number) AS reason FROM drops WHERE stage NOT IN ('ingest', 'filter')
  GROUP BY id
), faults AS (SELECT DISTINCT ON (id) id, shard, fault FROM fetched
), records AS (
  SELECT i.*, l.reason AS late, CASE WHEN l.reason IS NULL THEN i.id END AS passed FROM ingested i
  LEFT JOIN late l USING (row)
), traced AS (
  SELECT i.*, m.bucket AS number, CASE WHEN f.fault IS NULL THEN f.shard END AS shard,
    j.decision, v.vector, p.id AS release_id,
    coalesce(p.class, CASE WHEN j.decision = 'kept' THEN j.concept END, c.concept, i.label) AS class,
    CASE
      WHEN i.late IS NOT NULL THEN 'filter: ' || i.late
      WHEN p.id IS NOT NULL THEN NULL
      ELSE o.reason
    END AS reason
  FROM records i LEFT JOIN faults f ON f.id = passed LEFT JOIN lost o ON o.id = passed
  LEFT JOIN members m ON m.id = passed LEFT JOIN chosen c ON c.id = passed
  LEFT JOIN judged j ON j.id = passed LEFT JOIN renamed r ON r.id = passed
  LEFT JOIN published p ON p.id = coalesce(r.released, passed)
  LEFT JOIN vectors v ON v.id = passed
)
SELECT t.id, title,
  CASE WHEN reason IS DISTINCT FROM 'filter: impossible_upload_date' THEN uploaded END AS uploaded,
  nullif(regexp_extract(extra, '"date_precision": "(\w+)"', 1), '') AS precision,
  coalesce(path, url) AS place, CASE WHEN path IS NOT NULL THEN url END AS url, page_url, path, shard, vector,
  b.label AS bucket, class,
  coalesce(user, nickname) AS uploader, licence, decision, reason, row AS place_in_order,
  CASE WHEN reason IS NOT NULL THEN 'dropped' WHEN release_id IS NOT NULL THEN 'in the release' ELSE 'in the run' END
    AS outcome
FROM traced t LEFT JOIN names b ON b.number = t.number
UNION ALL
SELECT coalesce(id, 'record ' || row), left(detail, 200), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
  NULL, NULL, NULL, 'ingest: ' || reason, row, 'dropped' FROM drops WHERE stage = 'ingest'
"""


def run_collection(context: Context) -> Collection:
    """The photos of a run folder. Raises MissingFile if nothing was read yet."""
    root = context.root
    if done_of(root, "ingest") is None:
        raise MissingFile(
            f"The stage ingest of {root} is not done.", "Expected photos.", f"Run: driftline run {root} --until ingest."
        )
    database = photos(root)
    # Of empty tables DuckDB guesses that nothing joins them, and then hashes the wide side of every join.
    database.execute("SET disabled_optimizers = 'build_side_probe_side'")
    database.execute("CREATE TEMP TABLE drops AS FROM dropped")
    names = released_ids(root)
    pairs = [pa.array(list(ids), pa.string()) for ids in (names, names.values())]
    database.register("renamed", pa.table(pairs, names=["id", "released"]))
    done = {stage: done_of(root, stage) for stage in ("bucket", "embed")}
    ids = VectorStore.open(folder_of(root, "embed")).ids if done["embed"] else pa.chunked_array([], pa.string())
    database.register("vectors", pa.table({"id": ids, "vector": pa.array(range(len(ids)), pa.int64())}))
    buckets = read_json(folder_of(root, "bucket") / "buckets.json") if done["bucket"] else []
    named = labels(buckets)
    database.register("names", _names(named))
    source = Source(
        name=root.resolve().name,
        kind="run",
        buckets=list(named.values()),
        picture=_pictures(root),
        context=context,
        trace=lambda id_: trace(root, id_),
        withdrawn=withdrawn_of(context, names),
    )
    return Collection(source, database, QUERY)


def withdrawn_of(context: Context, names: Mapping[str, str]) -> Callable[[Row], bool]:
    """Whether the next run leaves a photo out as withdrawn, by the lists as they are now. names: ids → ids in a
    release."""
    rows = [one for path in FilterTable(context).outside() for one in withdrawals(path)]
    ids, addresses = {one.id for one in rows if one.id}, {one.address for one in rows if one.address}

    def is_listed(row: Row) -> bool:
        url = row["address"] if addresses else None
        by_url = url is not None and address_digest(url) in addresses
        return by_url or row["id"] in ids or names.get(row["id"]) in ids

    return is_listed


def _names(labels: Mapping[int, str]) -> pa.Table:
    """Number and label of each bucket."""
    return pa.table({"number": pa.array(labels, pa.int32()), "label": pa.array(list(labels.values()), pa.string())})


def _pictures(root: Path) -> Callable[[Row], bytes | None]:
    """Images come from the shards; of photos that were dropped before, from the files that the source names."""
    readers: dict[int, Reader] = {}
    lock = Lock()

    def picture(row: Row) -> bytes | None:
        if row["shard"] is not None:
            shard = int(row["shard"])
            with lock:
                if shard not in readers:
                    readers[shard] = Reader(folder_of(root, "fetch"), shard)
            return readers[shard].get(row["id"])
        if row["path"] is None:
            return None
        contents: list[bytes | None] = []
        part = pa.table({"row": [0], "path": [row["path"]]})
        read_local(part, LARGEST, lambda _row, data, _reason, _detail: contents.append(data))
        data = contents[0] if contents else None
        return data if data is not None and len(data) <= LARGEST else None

    return picture


RELEASE = """
SELECT id, uploaded, title, coalesce(url, page_url) AS place, page_url, shard, member,
  b.label AS bucket, class, "user" AS uploader, licence, {split}, r.row AS place_in_order
FROM released r LEFT JOIN names b ON b.number = r.bucket
"""


def release_collection(release: Release) -> Collection:
    """The images of a release."""
    named = labels(release.buckets)
    database = duckdb.connect()
    table = release.table
    database.register("released", table.append_column("row", pa.array(range(len(table)))))
    database.register("names", _names(named))
    source = Source(
        name=release.name, kind="release", buckets=list(named.values()), picture=_members(release.path / "shards")
    )
    split = "split_0 AS split" if "split_0" in table.schema.names else "NULL::VARCHAR AS split"
    return Collection(source, database, RELEASE.format(split=split))


def _members(folder: Path) -> Callable[[Row], bytes | None]:
    """Images from the tars of a release; of each tar the places of its members are read once."""
    places: dict[str, dict[str, tuple[int, int]]] = {}
    lock = Lock()

    def picture(row: Row) -> bytes | None:
        path = inside(folder, str(row["shard"]), folder)
        with lock:
            if path.name not in places:
                with tarfile.open(path) as tar:
                    places[path.name] = {m.name: (m.offset_data, m.size) for m in tar if m.isfile()}
        place = places[path.name].get(str(row["member"]))
        if place is None:
            return None
        with path.open("rb") as file:
            file.seek(place[0])
            return file.read(place[1])

    return picture
