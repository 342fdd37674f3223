"""Parquet tables of photos: a file, a folder of files, or a file behind an http(s) address."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
from pydantic import AfterValidator

from driftline.curate.core.errors import BadInput, MissingFile, reason
from driftline.curate.core.outside.tables import BoundedParquet, readable
from driftline.curate.core.settings import PLACE, PathText
from driftline.curate.images.local_files import cell_path
from driftline.curate.metadata.column_mapping import check_columns, check_names, record_of, rows_of_batch
from driftline.curate.metadata.column_survey import Reading
from driftline.curate.metadata.schema import batch_of, rebatch
from driftline.curate.sources.base import HERE, TableSource, Workplace

READ = 4096  # rows that are read at a time


class Parquet(TableSource):
    """A Parquet file, a folder of them, or the http(s) address of one, of which only the needed parts are read.

    Times and paths are read as by `delimited`. Images in a column are read by the stage fetch.
    """

    columns: Annotated[dict[str, str], AfterValidator(partial(check_columns, images=("url", "path", "image")))]
    """column of the collection → column of the table, e.g. {url: link, uploaded: year}; uploaded and one of url, path,
    image (a column with the image's bytes, or a record with `bytes`) are needed"""
    root: Annotated[PathText | None, PLACE] = None
    """folder that image paths start from and stay below (null: the table's folder)"""

    def inputs(self, at: Workplace = HERE) -> list[Path]:
        """The files; none for an address on the web."""
        if self.path.startswith(("http://", "https://")):
            return []
        path = at.path(self.path)
        files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
        if not files:
            raise BadInput(f"The folder {path} is empty of Parquet files.", "Expected files ending in .parquet.")
        if not files[0].is_file():
            raise MissingFile(
                f"There is no file {path}.", "Expected a Parquet file or folder.", "Check collection.path."
            )
        return files

    def batches(self, rows: int = 65_536, skip: int = 0, at: Workplace = HERE) -> Iterator[pa.RecordBatch]:
        """Yield one record a row, files in name order."""
        files: Sequence[Path | str] = self.inputs(at) or [self.path]
        root = None if self.root is None else at.path(self.root)
        yield from rebatch(self._read(files, root, skip, self.survey(at)), rows)

    def cells(self, at: Workplace, names: Collection[str]) -> Iterator[dict[str, Any]]:
        """Every row of the columns called `names` whose type leaves open what a value means."""
        files: Sequence[Path | str] = self.inputs(at) or [self.path]
        for path in files:
            with readable(path, "Expected Parquet."), _open_bytes(path) as file:
                parquet = BoundedParquet(file, path)
                if chosen := [c.name for c in parquet.schema if c.name in names and not _is_a_time(c.type)]:
                    for batch in parquet.batches(READ, chosen):
                        yield from rows_of_batch(batch)

    def _read(
        self, files: Sequence[Path | str], root: Path | None, skip: int, reading: Reading
    ) -> Iterator[pa.RecordBatch]:
        row = 0
        plain = {name: column for name, column in self.columns.items() if name != "image"}
        for path in files:
            start = (root or (path.parent if isinstance(path, Path) else Path.cwd())).resolve()
            try:
                with _open_bytes(path) as file:
                    parquet = BoundedParquet(file, path)
                    size = parquet.rows
                    check_names(path, parquet.schema.names, self.columns)
                    if row + size <= skip:
                        row += size
                        continue
                    begin = row
                    for batch in parquet.batches(READ, list(set(plain.values()))):
                        if row + len(batch) > skip:
                            records = [self._record(values, plain, row + i, row + i - begin, path, start, reading)
                                       for i, values in enumerate(rows_of_batch(batch))]  # fmt: skip
                            yield batch_of(records).slice(max(0, skip - row))
                        row += len(batch)
            except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
                why = f"{path} cannot be read after row {row:,} ({reason(error)})."
                raise BadInput(why, "Expected Parquet.") from None
        if row == 0:
            raise BadInput(f"{self.path} is empty.", "Expected one row a photo.")

    def _record(
        self,
        values: dict[str, Any],
        plain: Mapping[str, str],
        row: int,
        inside: int,
        path: Path | str,
        root: Path,
        reading: Reading,
    ) -> dict[str, Any]:
        """row: number in the table. inside: number in the file `path`. root: folder that image paths start from."""
        if "image" not in self.columns:
            return record_of(values, plain, row, root, reading)
        name = f"{Path(path).stem}-{inside}"
        record = record_of({"": name, **values}, {"id": "", **plain}, row, root, reading)
        if "fault" not in record:
            record["path"] = cell_path(Path(path).absolute(), self.columns["image"], inside)
        return record


def _is_a_time(kind: pa.DataType) -> bool:
    """Whether values of this type say what they are."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _open_bytes(path: Path | str) -> Any:
    if isinstance(path, Path):
        return path.open("rb")
    import fsspec

    return fsspec.open(path, "rb")
