"""Hugging Face: Parquet with Image and ClassLabel columns, one split per bucket, card, Croissant, checksums."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import sha256_file, write_json, write_text, writing
from driftline.curate.foreign.documents import read_text
from driftline.curate.release.changes import changes_markdown
from driftline.curate.release.croissant import croissant
from driftline.curate.release.data_card import card
from driftline.curate.release.format import AGAIN, Release
from driftline.curate.release.writer import attribution, seal

IMAGES = 2000  # images per file
GROUP = 100  # images per row group, which streaming readers fetch at once
LEFT_OUT = ("shard", "member", "votes")


def export(release: Release, out: Path) -> dict[str, int]:
    """Parquet files that `datasets.load_dataset` opens without arguments, with card and Croissant."""
    features = features_of(release)
    schema = pa.schema(
        [
            pa.field("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
            *(pa.field(n, pa.int64() if n == "label" else release.table[n].type) for n in features if n != "image"),
        ],
        metadata={"huggingface": json.dumps({"info": {"features": features}})},
    )
    files = []
    sizes: dict[str, tuple[int, int]] = {}
    for bucket in release.buckets:
        rows = release.table.filter(pa.compute.equal(release.table["bucket"], bucket["index"])).to_pylist()
        split = f"bucket_{bucket['index']:02d}"
        parts = -(-len(rows) // IMAGES)
        images = release.images(bucket["index"])
        written = 0
        for part in range(parts):
            path = out / "data" / f"{split}-{part:05d}-of-{parts:05d}.parquet"
            with writing(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
                in_file = rows[part * IMAGES : (part + 1) * IMAGES]
                for low in range(0, len(in_file), GROUP):
                    writer.write_table(_group(in_file[low : low + GROUP], images, schema))
            files.append((f"data/{path.name}", sha256_file(path), path.stat().st_size))
            written += path.stat().st_size
        sizes[split] = (len(rows), written)
    facts = {**release.facts, "features": [], "unlabelled": None}  # what is not written here is not said here
    write_text(out / "README.md", card(facts, "parquet", features, sizes))
    columns = {field.name: str(field.type) for field in schema}
    write_json(out / "croissant.json", croissant(facts, columns, files, facts["provenance"].get("url")))
    write_json(out / "release.json", facts)
    write_text(out / "ATTRIBUTION.csv", attribution(release.table.to_pylist()))
    write_text(out / "WITHDRAWN.csv", read_text(release.path / "WITHDRAWN.csv", AGAIN))
    if facts["changes"]:
        write_text(out / "CHANGES.md", changes_markdown(facts["changes"], facts["version"]))
    seal(out)
    return {"images": len(release.table), "files": len(files)}


def features_of(release: Release) -> dict[str, dict[str, Any]]:
    """Column → feature, in the format of `datasets`."""
    features: dict[str, dict[str, Any]] = {
        "image": {"_type": "Image"},
        "label": {"names": release.classes, "_type": "ClassLabel"},
    }
    dtypes = {"string": "string", "int32": "int32", "int64": "int64", "float": "float32"}
    for field in release.table.schema:
        if field.name not in (*LEFT_OUT, "label"):
            features[field.name] = {"dtype": dtypes[str(field.type)], "_type": "Value"}
    return features


def _group(rows: list[dict[str, Any]], images: Iterator[tuple[str, bytes]], schema: pa.Schema) -> pa.Table:
    """A row group with image bytes; `images` is in the order of the rows."""
    for row in rows:
        id_, data = next(images)
        assert id_ == row["id"]  # Release.images yields in the order of its table
        row["image"] = {"bytes": data, "path": row["member"]}
    return pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema=schema)
