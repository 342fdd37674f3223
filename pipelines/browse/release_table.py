"""The images of a release, and the samples of a stream, which `driftline audit` shows."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from driftline.curate.core.outside.names import inside, is_count
from driftline.curate.release import Release
from driftline.curate.retrieval.vector_store import VectorFile, vector_file
from driftline.pipelines.browse.collection import Collection, Row, Source
from driftline.pipelines.web.dates import labels, period
from driftline.stream_builder.stream import Split, Stream

RELEASE = """
SELECT id, uploaded, title, coalesce(url, page_url) AS place, page_url, shard, member, r.row AS vector,
  b.label AS bucket, class, "user" AS uploader, licence, {split}, r.row AS place_in_order
FROM released r LEFT JOIN names b ON b.number = r.bucket
"""
STREAM = "SELECT *, row AS place_in_order FROM samples"


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


def stream_collection(folder: Path) -> Collection:
    """The samples of a stream."""
    stream = Stream.load(folder)
    parts: list[tuple[str, str, Split]] = []
    for step in stream.steps:
        times = [s.time for s in step.splits.values() if s.time is not None and len(s)]
        dated = is_count(step.name) and len(step.name) < 4 and times
        first, last = (min(int(t.min()) for t in times), max(int(t.max()) for t in times)) if dated else (None, None)
        label = period(first, last) if dated else step.name
        parts += [(label, side, split) for side, split in step.splits.items()]
    rows: dict[str, Any] = {name: [] for name in ("id", "uploaded", "bucket", "class", "split")}
    for label, side, split in parts:
        rows["id"] += [str(i) for i in split.ids]
        rows["uploaded"] += [None] * len(split) if split.time is None else np.asarray(split.time).tolist()
        rows["bucket"] += [label] * len(split)
        rows["class"] += [stream.classes[y] for y in split.y]
        rows["split"] += [side] * len(split)
    count = len(rows["id"])
    numbers = pa.array(range(count), pa.int64())
    times = pa.array(rows.pop("uploaded"), pa.int64())
    table = pa.table({name: pa.array(column, pa.string()) for name, column in rows.items()})
    table = table.append_column("uploaded", times).append_column("row", numbers)
    table = table.append_column("shard", numbers.cast(pa.string()))
    database = duckdb.connect()
    database.register("samples", table)
    starts = np.cumsum([0, *(len(split) for *_, split in parts)])

    def picture(row: Row) -> bytes | None:
        part = int(np.searchsorted(starts, int(row["shard"]), "right")) - 1
        sample = np.asarray(parts[part][2].x[int(row["shard"]) - int(starts[part])])
        return _png(sample) if sample.dtype == np.uint8 and sample.ndim in (2, 3) else None

    source = Source(
        name=stream.name,
        kind="stream",
        buckets=list(dict.fromkeys(label for label, *_ in parts)),
        picture=picture,
        inputs=[folder / "stream.json"],
    )
    return Collection(source, database, STREAM)


def _png(pixels: npt.NDArray[Any]) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels.squeeze()).save(buffer, "PNG")
    return buffer.getvalue()
