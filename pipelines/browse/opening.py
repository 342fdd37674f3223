"""The photos of a run or a release."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path
from threading import Lock

import duckdb
import pyarrow as pa

from driftline.curate.core.errors import BadInput
from driftline.curate.core.executor import Executor
from driftline.curate.core.executor.local import default_workers
from driftline.curate.core.outside.names import inside
from driftline.curate.release import Release
from driftline.curate.retrieval.vector_store import VectorFile, vector_file
from driftline.pipelines.browse.collection import Collection, Row, Source
from driftline.pipelines.browse.run_table import run_collection
from driftline.pipelines.run.run_folder import Run, open_folder
from driftline.pipelines.web.dates import labels

RELEASE = """
SELECT id, uploaded, title, coalesce(url, page_url) AS place, page_url, shard, member, r.row AS vector,
  b.label AS bucket, class, "user" AS uploader, licence, {split}, r.row AS place_in_order
FROM released r LEFT JOIN names b ON b.number = r.bucket
"""


def open_collection(path: Path) -> Collection:
    """The photos of a run or a release. Raises MissingFile and BadInput for a folder that is neither."""
    opened = open_folder(path)
    if isinstance(opened, Run):
        return run_collection(opened.context(executor=Executor("local", default_workers())))  # its model reads prompts
    if isinstance(opened, Release):
        return release_collection(opened)
    raise BadInput(f"{path} is a stream.", "Expected a run folder or a release.", "Its pictures: driftline audit.")


def release_collection(release: Release) -> Collection:
    """The images of a release."""
    named = labels(release.buckets)
    database = duckdb.connect()
    table = release.table
    database.register("released", table.append_column("row", pa.array(range(len(table)))))
    database.register(
        "names",
        pa.table({"number": pa.array(named, pa.int32()), "label": pa.array(list(named.values()), pa.string())}),
    )
    vectors: tuple[VectorFile, ...] = ()
    if release.facts["features"]:
        release.features(release.facts["features"][0])  # checks name and shape
        vectors = (vector_file(release.path / "features" / f"{release.facts['features'][0]}.npy"),)
    source = Source(
        name=release.name,
        kind="release",
        buckets=list(named.values()),
        picture=_members(release.path / "shards"),
        vectors=vectors,
        inputs=[release.path / "metadata.parquet", release.path / "release.json"],
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
