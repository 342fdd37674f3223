"""A Hugging Face `datasets` folder: Parquet files of a repository, or what `save_to_disk` wrote, with their images."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from curate.core.errors import BadInput, MissingFile
from curate.images.local_files import cell_path
from curate.metadata.column_mapping import check_columns, record_of
from curate.metadata.schema import batch_of, rebatch


@dataclass(frozen=True)
class HuggingFace:
    """path: a folder with .parquet files (as on the hub) or .arrow files (`save_to_disk`), read in name order.

    columns: {table column: file column}; `image` (default "image") and `uploaded` are needed. A label that the
    folder knows as ClassLabel gets its name. The pictures themselves are read when they are fetched.
    """

    path: Path
    columns: Mapping[str, str] = field(default_factory=dict)

    def inputs(self) -> list[Path]:
        """The data files."""
        if not self.path.is_dir():
            raise MissingFile(
                f"There is no folder {self.path}.", "Expected a datasets folder.", "Check collection.path."
            )
        files = sorted(self.path.rglob("*.parquet")) or sorted(
            p for p in self.path.rglob("*.arrow") if not p.name.startswith("cache-")
        )
        if not files:
            raise BadInput(f"The folder {self.path} is empty of data.", "Expected .parquet or .arrow files.")
        return files

    def batches(self, rows: int = 65_536, skip: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield one record a row, files in name order."""
        self.inputs()
        columns = {"image": "image", **self.columns}
        check_columns(columns, "image")
        yield from rebatch(self._read(columns, skip), rows)

    def _read(self, columns: Mapping[str, str], skip: int) -> Iterator[pa.RecordBatch]:
        row = 0
        plain = {name: column for name, column in columns.items() if name != "image"}
        root = self.path.resolve()
        for path in self.inputs():
            begin = row
            for batch, names in _batches(path, columns):
                if row + len(batch) > skip:
                    made = []
                    for i, values in enumerate(batch.to_pylist()):
                        for column, known in names.items():
                            if isinstance(values.get(column), int) and 0 <= values[column] < len(known):
                                values[column] = known[values[column]]
                        inside = row + i - begin
                        name = f"{path.relative_to(self.path).with_suffix('').as_posix()}-{inside}"
                        record = record_of({"": name, **values}, {"id": "", **plain}, row + i, root)
                        if "fault" not in record:
                            record["path"] = cell_path(path.resolve(), columns["image"], inside)
                        made.append(record)
                    yield batch_of(made).slice(max(0, skip - row))
                row += len(batch)
        if row == 0:
            raise BadInput(f"{self.path} is empty.", "Expected one row a photo.")


def _batches(path: Path, columns: Mapping[str, str]) -> Iterator[tuple[pa.RecordBatch, dict[str, list[str]]]]:
    """(the plain columns of some rows, names of the ClassLabel columns)."""
    try:
        if path.suffix == ".parquet":
            parquet = pq.ParquetFile(path)
            names = _class_labels(parquet.schema_arrow)
            plain = _plain(path, parquet.schema_arrow, columns)
            for batch in parquet.iter_batches(4096, columns=plain):
                yield batch, names
            return
        with pa.memory_map(str(path)) as source:
            reader = pa.ipc.open_stream(source)
            names = _class_labels(reader.schema)
            plain = _plain(path, reader.schema, columns)
            for batch in reader:
                yield batch.select(plain), names
    except (pa.ArrowInvalid, OSError) as error:
        raise BadInput(f"{path} cannot be read ({error}).", "Expected a file of Hugging Face datasets.") from None


def _plain(path: Path, schema: pa.Schema, columns: Mapping[str, str]) -> list[str]:
    if missing := sorted(set(columns.values()) - set(schema.names)):
        raise BadInput(
            f"{path} has no column {', '.join(map(repr, missing))}.",
            f"It has {schema.names}.",
            "Correct collection.columns.",
        )
    return sorted({column for name, column in columns.items() if name != "image"})


def _class_labels(schema: pa.Schema) -> dict[str, list[str]]:
    """Columns that the folder's own metadata describes as ClassLabel → their names."""
    try:
        features: Any = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return {c: list(map(str, f["names"])) for c, f in features.items() if f.get("_type") == "ClassLabel"}
    except (KeyError, ValueError, TypeError, AttributeError):
        return {}
