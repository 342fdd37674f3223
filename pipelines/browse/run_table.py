"""The photos of a run folder: everything that ingest read, also what was dropped, and why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Lock

import duckdb
import pyarrow as pa

from curate.core.atomic_io import read_json
from curate.core.errors import DriftlineError, MissingFile
from curate.encoders import Encoder
from curate.images.local_files import read_local
from curate.images.shards import Reader
from curate.retrieval.retrieve import FATES, text_encoder
from curate.retrieval.vector_store import Store
from pipelines.browse.collection import Collection, Row, Source, view
from pipelines.reporting.dropped import KEPT
from pipelines.reporting.trace import trace
from pipelines.stage import Context
from pipelines.stage_folder import done_of, folder_of
from pipelines.stages.embed import spec_of
from pipelines.web.dates import labels

LARGEST = 64 << 20  # bytes of a local file that is shown
REJECT = {"id": "VARCHAR", "row": "BIGINT", "reason": "VARCHAR", "detail": "VARCHAR"}
TABLES: dict[str, tuple[str, str, dict[str, str]]] = {  # view → stage, files, columns
    "ingested": (
        "ingest",
        "table/*.parquet",
        dict.fromkeys(
            ("id", "url", "path", "user", "nickname", "title", "page_url", "licence", "label", "extra"), "VARCHAR"
        )
        | {"row": "BIGINT", "uploaded": "BIGINT"},
    ),
    "unread": ("ingest", "rejects/*.parquet", REJECT),
    "filtered": ("filter", "rejects/*.parquet", REJECT),
    "fetched": ("fetch", "index.parquet", {"id": "VARCHAR", "shard": "VARCHAR", "fault": "VARCHAR"}),
    "unbucketed": ("bucket", "rejects.parquet", REJECT),
    "members": ("bucket", "members.parquet", {"id": "VARCHAR", "bucket": "INTEGER"}),
    "not_embedded": ("embed", "metadata/*.parquet", {"id": "VARCHAR", "fault": "VARCHAR"}),
    "candidates": (
        "retrieve",
        "candidates.parquet",
        {"id": "VARCHAR", "concept": "VARCHAR", "score": "FLOAT", "fate": "VARCHAR"},
    ),
    "verdicts": ("tally", "verdicts.parquet", {"id": "VARCHAR", "concept": "VARCHAR", "verdict": "VARCHAR"}),
    "answers": ("tally", "answers.parquet", {"id": "VARCHAR", "worker": "VARCHAR", "fault": "VARCHAR"}),
    "published": ("publish", "release/metadata.parquet", {"id": "VARCHAR", "class": "VARCHAR"}),
}
# The first stage that dropped a photo gives the reason. $: filled in from what the run has done.
QUERY = r"""
WITH chosen AS (  -- a photo can be in several lists of candidates: its own fate is the best of them
  SELECT id, min_by(concept, place) AS concept, min_by(fate, place) AS fate
  FROM (SELECT *, coalesce(list_position($fates, fate), 99) - score / 10 AS place FROM candidates) GROUP BY id
), judged AS (
  SELECT id, min_by(concept, place) AS concept, min_by(verdict, place) AS verdict
  FROM (SELECT *, (verdict <> 'kept')::INTEGER AS place FROM verdicts) GROUP BY id
), judges AS (SELECT id, list_sort(list(DISTINCT worker)) AS judge FROM answers WHERE fault IS NULL GROUP BY id
), late AS (SELECT row, any_value(reason) AS reason FROM filtered GROUP BY row
), faults AS (SELECT DISTINCT ON (id) id, shard, fault FROM fetched
), outside AS (SELECT id, any_value(reason) AS reason FROM unbucketed GROUP BY id
), unfit AS (SELECT id, any_value(fault) AS fault FROM not_embedded WHERE fault IS NOT NULL GROUP BY id
), traced AS (
  SELECT i.*, m.bucket AS number, CASE WHEN f.fault IS NULL THEN f.shard END AS shard,
    j.verdict, w.judge, v.vector, p.id AS release_id,
    coalesce(p.class, CASE WHEN j.verdict = 'kept' THEN j.concept END, c.concept, i.label) AS class,
    CASE
      WHEN l.reason IS NOT NULL THEN 'filter: ' || l.reason  -- first: its id may be that of a photo that is kept
      WHEN p.id IS NOT NULL THEN NULL
      WHEN f.fault IS NOT NULL THEN 'fetch: ' || f.fault
      WHEN o.reason IS NOT NULL THEN 'bucket: ' || o.reason
      WHEN u.fault IS NOT NULL THEN 'embed: ' || u.fault
      WHEN $retrieved AND c.fate IS NULL THEN 'retrieve: not_retrieved'
      WHEN c.fate NOT IN $kept THEN 'retrieve: ' || c.fate
      WHEN j.verdict <> 'kept' THEN 'tally: ' || j.verdict
      WHEN $published THEN 'publish: ' || $left
    END AS reason
  FROM ingested i
  LEFT JOIN late l USING (row) LEFT JOIN faults f ON f.id = i.id LEFT JOIN outside o ON o.id = i.id
  LEFT JOIN members m ON m.id = i.id LEFT JOIN unfit u ON u.id = i.id LEFT JOIN chosen c ON c.id = i.id
  LEFT JOIN judged j ON j.id = i.id LEFT JOIN judges w ON w.id = i.id LEFT JOIN published p ON p.id = i.id
  LEFT JOIN vectors v ON v.id = i.id
)
SELECT t.id, CASE WHEN reason IS DISTINCT FROM 'filter: impossible_upload_date' THEN uploaded END AS uploaded, title,
  nullif(regexp_extract(extra, '"date_precision": "(\w+)"', 1), '') AS precision,
  coalesce(path, url) AS place, page_url, path, shard, vector, b.label AS bucket, class,
  coalesce(user, nickname) AS uploader, licence, verdict, judge, reason, row AS place_in_order,
  CASE WHEN reason IS NOT NULL THEN 'dropped' WHEN release_id IS NOT NULL THEN 'in the release' ELSE 'in the run' END
    AS outcome
FROM traced t LEFT JOIN names b ON b.number = t.number
UNION ALL
SELECT coalesce(id, 'record ' || row), NULL, left(detail, 200), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
  NULL, NULL, NULL, 'ingest: ' || reason, row, 'dropped' FROM unread
"""


def run_collection(context: Context) -> Collection:
    """The photos of a run folder. Raises MissingFile if nothing was read yet."""
    root = context.root
    if done_of(root, "ingest") is None:
        raise MissingFile(
            f"The stage ingest of {root} is not done.", "Expected photos.", f"Run: driftline run {root} --until ingest."
        )
    database = duckdb.connect()
    inputs: list[Path] = []
    for name, (stage, pattern, columns) in TABLES.items():
        folder = folder_of(root, stage)
        files = sorted(folder.glob(pattern)) if done_of(root, stage) is not None else []
        inputs += files
        view(database, name, files, columns)
    done = {stage: done_of(root, stage) for stage in ("bucket", "embed", "retrieve", "publish")}
    store = Store.open(folder_of(root, "embed")) if done["embed"] else None
    ids = pa.chunked_array([], pa.string()) if store is None else store.ids
    database.register("vectors", pa.table({"id": ids, "vector": pa.array(range(len(ids)), pa.int64())}))
    buckets = read_json(folder_of(root, "bucket") / "buckets.json") if done["bucket"] else []
    named = labels(buckets)
    database.register(
        "names",
        pa.table({"number": pa.array(named, pa.int32()), "label": pa.array(list(named.values()), pa.string())}),
    )
    source = Source(
        name=root.resolve().name,
        kind="run",
        buckets=list(named.values()),
        picture=_pictures(root),
        vectors=store.files if store else (),
        encoder=_encoder(context) if store else None,
        trace=lambda id_: trace(root, id_),
        inputs=inputs,
    )
    left = " or ".join(done["publish"]["counts"]["dropped"]) if done["publish"] else ""
    values = {
        "$fates": _list(FATES),
        "$kept": f"({_list(KEPT)[1:-1]})",
        "$retrieved": str(done["retrieve"] is not None),
        "$published": str(done["publish"] is not None),
        "$left": _text(left or "not_chosen"),
    }
    query = QUERY
    for name, value in values.items():
        query = query.replace(name, value)
    return Collection(source, database, query)


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _list(values: tuple[str, ...]) -> str:
    return "[" + ", ".join(map(_text, values)) + "]"


def _encoder(context: Context) -> Callable[[], Encoder] | None:
    """Loads the model; None if it cannot be loaded: a page without prompts is still of use."""
    folder = folder_of(context.root, "embed")
    try:
        spec = spec_of(context)
    except DriftlineError:
        return None
    return lambda: text_encoder(spec, folder, context.run_log)


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
        found: list[bytes | None] = []
        part = pa.table({"row": [0], "path": [row["path"]]})
        read_local(part, LARGEST, lambda _row, data, _reason, _detail: found.append(data))
        data = found[0] if found else None
        return data if data is not None and len(data) <= LARGEST else None

    return picture
