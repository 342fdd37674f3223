"""Parquet that `datasets.load_dataset` opens: one split for each step and split, Image and ClassLabel in the footer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby, islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from curate.core.atomic_io import write_text, writing
from stream_builder.export.pictures import Picture, pictures
from stream_builder.stream import Stream

GROUP = 500  # images of a row group


def export(stream: Stream, out: Path) -> dict[str, int]:
    """`data/step_000_train-00000-of-00001.parquet` …: image, label, id, step, time."""
    features = {
        "image": {"_type": "Image"},
        "label": {"names": [str(c) for c in stream.classes], "_type": "ClassLabel"},
        "id": {"dtype": "string", "_type": "Value"},
        "step": {"dtype": "int64", "_type": "Value"},
        "time": {"dtype": "int64", "_type": "Value"},
    }
    schema = pa.schema(
        [
            pa.field("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
            pa.field("label", pa.int64()),
            pa.field("id", pa.string()),
            pa.field("step", pa.int64()),
            pa.field("time", pa.int64()),
        ],
        metadata={"huggingface": json.dumps({"info": {"features": features}})},
    )
    n = 0
    names = []
    for (step, split), some in groupby(pictures(stream), lambda p: (p.step.index, p.split)):
        name = f"step_{step:03d}_{split}"
        names.append(name)
        path = out / "data" / f"{name}-00000-of-00001.parquet"
        with writing(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
            while rows := _rows(some):
                writer.write_table(pa.Table.from_pylist(rows, schema))
                n += len(rows)
    files = "".join(f"  - split: {name}\n    path: data/{name}-*.parquet\n" for name in names)
    head = f"---\nconfigs:\n- config_name: default\n  data_files:\n{files}---\n\n"
    write_text(out / "README.md", f"{head}# {stream.name}\n\n{n} images, stream {stream.sha256}.\n")
    return {"images": n, "splits": len(names)}


def _rows(some: Iterator[Picture]) -> list[dict[str, object]]:
    return [
        {
            "image": {"bytes": p.data, "path": f"{p.key}.png"},
            "label": p.label,
            "id": p.id,
            "step": p.step.index,
            "time": p.time,
        }
        for p in islice(some, GROUP)
    ]
