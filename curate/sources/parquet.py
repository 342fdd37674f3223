"""Parquet tables of photos: a file, a folder of files, or a file behind an http(s) address."""

from __future__ import annotations

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

READ = 4096  # rows that are read at a time


@dataclass(frozen=True)
class Parquet:
    """Parquet files, read in name order; of an address on the web only the parts that are needed are read.

    columns: {table column: file column}; `uploaded` and one of `url`, `path`, `image` are needed. `image` is a column
    that holds the picture itself (bytes, or a record with `bytes`); it is read when the photo is fetched. Times and
    paths as in `delimited`.
    """

    path: Path | str
    columns: Mapping[str, str] = field(default_factory=dict)
    root: Path | None = None

    def inputs(self) -> list[Path]:
        """The files; none for an address on the web."""
        if _is_address(self.path):
            return []
        path = Path(self.path)
        files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
        if not files:
            raise BadInput(f"The folder {path} is empty of Parquet files.", "Expected files ending in .parquet.")
        if not files[0].is_file():
            raise MissingFile(
                f"There is no file {path}.", "Expected a Parquet file or folder.", "Check collection.path."
            )
        return files

    def batches(self, rows: int = 65_536, skip: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield one record a row, files in name order."""
        self.inputs()
        check_columns(self.columns, "url", "path", "image")
        yield from rebatch(self._read(skip), rows)

    def _read(self, skip: int) -> Iterator[pa.RecordBatch]:
        row = 0
        plain = {name: column for name, column in self.columns.items() if name != "image"}
        paths: list[Path | str] = [*self.inputs()] or [str(self.path)]
        for path in paths:
            try:
                with _opened(path) as file:
                    parquet = pq.ParquetFile(file)
                    size = parquet.metadata.num_rows
                    _check(path, parquet, self.columns)
                    if row + size <= skip:
                        row += size
                        continue
                    begin = row
                    for batch in parquet.iter_batches(READ, columns=list(set(plain.values()))):
                        if row + len(batch) > skip:
                            made = [self._record(values, plain, row + i, row + i - begin, path)
                                    for i, values in enumerate(batch.to_pylist())]  # fmt: skip
                            yield batch_of(made).slice(max(0, skip - row))
                        row += len(batch)
            except (pa.ArrowInvalid, OSError) as error:
                raise BadInput(f"{path} cannot be read after row {row:,} ({error}).", "Expected Parquet.") from None
        if row == 0:
            raise BadInput(f"{self.path} is empty.", "Expected one row a photo.")

    def _record(
        self, values: dict[str, Any], plain: Mapping[str, str], row: int, inside: int, path: Path | str
    ) -> dict[str, Any]:
        root = (self.root or (Path(path).parent if isinstance(path, Path) else Path.cwd())).resolve()
        if "image" not in self.columns:
            return record_of(values, plain, row, root)
        name = f"{Path(path).stem}-{inside}"
        record = record_of({"": name, **values}, {"id": "", **plain}, row, root)
        if "fault" not in record:
            record["path"] = cell_path(Path(path).absolute(), self.columns["image"], inside)
        return record


def _is_address(path: Path | str) -> bool:
    return str(path).startswith(("http://", "https://", "http:/", "https:/"))


def _opened(path: Path | str) -> Any:
    if isinstance(path, Path):
        return path.open("rb")
    import fsspec

    return fsspec.open(path, "rb")


def _check(path: Path | str, parquet: pq.ParquetFile, columns: Mapping[str, str]) -> None:
    names = parquet.schema_arrow.names
    if missing := sorted(set(columns.values()) - set(names)):
        raise BadInput(
            f"{path} has no column {', '.join(map(repr, missing))}.", f"It has {names}.", "Correct collection.columns."
        )
