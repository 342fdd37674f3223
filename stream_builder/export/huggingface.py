"""Parquet for `datasets.load_dataset`: one split per step and split, Image and ClassLabel in the footer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby, islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import write_text, writing
from driftline.stream_builder.export.images import EncodedImage, images
from driftline.stream_builder.stream import Stream

GROUP = 500  # images per row group


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
    for (step, split), of_split in groupby(images(stream), lambda image: (image.step.index, image.split)):
        name = f"step_{step:03d}_{split}"
        names.append(name)
        path = out / "data" / f"{name}-00000-of-00001.parquet"
        with writing(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
            while rows := _rows(of_split):
                writer.write_table(pa.Table.from_pylist(rows, schema))
                n += len(rows)
    files = "".join(f"  - split: {name}\n    path: data/{name}-*.parquet\n" for name in names)
    head = f"---\nconfigs:\n- config_name: default\n  data_files:\n{files}---\n\n"
    write_text(out / "README.md", f"{head}# {stream.name}\n\n{n} images, stream {stream.sha256}.\n")
    return {"images": n, "splits": len(names)}


def _rows(of_split: Iterator[EncodedImage]) -> list[dict[str, object]]:
    return [
        {
            "image": {"bytes": image.data, "path": f"{image.key}.png"},
            "label": image.label,
            "id": image.id,
            "step": image.step.index,
            "time": image.time,
        }
        for image in islice(of_split, GROUP)
    ]
