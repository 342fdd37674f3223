"""Folders of Hugging Face `datasets`, with their images."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
from pydantic import AfterValidator

from driftline.curate.core.atomic_io import json_value
from driftline.curate.core.errors import BadInput, MissingFile, reason
from driftline.curate.core.outside.tables import BoundedParquet, check_offsets
from driftline.curate.images.local_files import cell_path
from driftline.curate.metadata.column_mapping import check_columns, check_names, record_of, rows_of_batch
from driftline.curate.metadata.column_survey import Reading
from driftline.curate.metadata.schema import batch_of, rebatch
from driftline.curate.sources.base import HERE, TableSource, Workplace

IMAGE = {"image": "image"}  # where images are, unless `columns` says otherwise


def _checked(columns: dict[str, str]) -> dict[str, str]:
    check_columns(IMAGE | columns, ["image"])
    return columns


class HuggingFace(TableSource):
    """A Hugging Face `datasets` folder: .parquet files (as on the hub) or .arrow files (`save_to_disk`), in name order.

    Labels of the type ClassLabel are read as names. The images themselves are read by the stage fetch.
    """

    columns: Annotated[dict[str, str], AfterValidator(_checked)]
    """column of the collection → column of the table, e.g. {uploaded: year, label: species}; uploaded is needed, image
    is "image" by default"""

    def inputs(self, at: Workplace = HERE) -> list[Path]:
        """The data files."""
        folder = at.path(self.path)
        if not folder.is_dir():
            raise MissingFile(f"There is no folder {folder}.", "Expected a datasets folder.", "Check collection.path.")
        files = sorted(folder.rglob("*.parquet")) or sorted(
            p for p in folder.rglob("*.arrow") if not p.name.startswith("cache-")
        )
        if not files:
            raise BadInput(f"The folder {folder} is empty of data.", "Expected .parquet or .arrow files.")
        return files

    def batches(self, rows: int = 65_536, skip: int = 0, at: Workplace = HERE) -> Iterator[pa.RecordBatch]:
        """Yield one record a row, files in name order."""
        yield from rebatch(self._read(self.inputs(at), at.path(self.path), skip, self.survey(at)), rows)

    def cells(self, at: Workplace, names: Collection[str]) -> Iterator[dict[str, Any]]:
        """Every row without its image."""
        for path in self.inputs(at):
            for batch, _ in _batches(path, IMAGE | self.columns):
                yield from rows_of_batch(batch)

    def _read(self, files: Sequence[Path], folder: Path, skip: int, reading: Reading) -> Iterator[pa.RecordBatch]:
        row = 0
        columns = IMAGE | self.columns
        plain = {name: column for name, column in columns.items() if name != "image"}
        root = folder.resolve()
        for path in files:
            begin = row
            for batch, names in _batches(path, columns):
                if row + len(batch) > skip:
                    records = []
                    for i, values in enumerate(rows_of_batch(batch)):
                        for column, labels in names.items():
                            if isinstance(values.get(column), int) and 0 <= values[column] < len(labels):
                                values[column] = labels[values[column]]
                        inside = row + i - begin
                        name = f"{path.relative_to(folder).with_suffix('').as_posix()}-{inside}"
                        record = record_of({"": name, **values}, {"id": "", **plain}, row + i, root, reading)
                        if "fault" not in record:
                            record["path"] = cell_path(path.resolve(), columns["image"], inside)
                        records.append(record)
                    yield batch_of(records).slice(max(0, skip - row))
                row += len(batch)
        if row == 0:
            raise BadInput(f"{folder} is empty.", "Expected one row a photo.")


def _batches(path: Path, columns: Mapping[str, str]) -> Iterator[tuple[pa.RecordBatch, dict[str, list[str]]]]:
    """Yield (some rows without their images, the names of the ClassLabel columns)."""
    try:
        if path.suffix == ".parquet":
            parquet = BoundedParquet(path)
            names = _class_labels(parquet.schema)
            plain = _columns_without_images(path, parquet.schema, columns)
            for batch in parquet.batches(4096, plain):
                yield batch, names
            return
        with pa.memory_map(str(path)) as source:
            reader = pa.ipc.open_stream(source)
            names = _class_labels(reader.schema)
            plain = _columns_without_images(path, reader.schema, columns)
            for batch in reader:
                chosen = batch.select(plain)
                check_offsets(chosen.columns)
                yield chosen, names
    except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
        raise BadInput(
            f"{path} cannot be read ({reason(error)}).", "Expected a file of Hugging Face datasets."
        ) from None


def _columns_without_images(path: Path, schema: pa.Schema, columns: Mapping[str, str]) -> list[str]:
    check_names(path, schema.names, columns)
    return sorted({column for name, column in columns.items() if name != "image"})


def _class_labels(schema: pa.Schema) -> dict[str, list[str]]:
    """Columns that the file's own metadata describes as ClassLabel → their names."""
    try:
        features: Any = json_value((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return {c: list(map(str, f["names"])) for c, f in features.items() if f.get("_type") == "ClassLabel"}
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        return {}
