"""YFCC100M metadata in every form that copies of it have: lines, SQLite, Parquet."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from driftline.curate.core.errors import BadInput, MissingFile
from driftline.curate.core.late import pa
from driftline.curate.sources.base import HERE, FileSource, Workplace

WHERE_TO_GET = (
    "Check collection.path. Without keys, the whole table (SQLite, 66 GB) is at https://multimedia-commons.s3-us-west-2."
    "amazonaws.com/tools/etc/yfcc100m_dataset.sql; the text form is yfcc100m_dataset.tgz in s3://mmcommons."
)


class Yfcc(FileSource):
    """YFCC100M metadata: 23- or 25-column lines (plain, .bz2, .gz), the SQLite file, or Parquet subsets.

    Of a folder, the `*dataset*` and `*.parquet` files are read in name order; row numbers count records over all files,
    from 0. [Thomee et al. 2016; the SQLite form has the 23 columns under the names of `columns.NAMES`]
    """

    records_version: ClassVar[int] = 3

    def inputs(self, at: Workplace = HERE) -> list[Path]:
        """The files, in the order in which they are read."""
        path = at.path(self.path)
        if path.is_dir():
            files = sorted(p for p in path.iterdir() if p.is_file() and ("dataset" in p.name or p.suffix == ".parquet"))
            if not files:
                raise MissingFile(
                    f"The folder {path} holds no YFCC100M metadata.",
                    "Expected files with 'dataset' in their name (yfcc100m_dataset-0.bz2, …) or Parquet files.",
                    "Set collection.path to the file itself.",
                )
            return files
        if not path.is_file():
            raise MissingFile(f"There is no file {path}.", "Expected YFCC100M metadata.", WHERE_TO_GET)
        return [path]

    def batches(self, rows: int = 65_536, skip: int = 0, at: Workplace = HERE) -> "Iterator[pa.RecordBatch]":
        """Yield records in file order; a line that is not a YFCC record keeps its place and carries a fault."""
        from driftline.curate.metadata.schema import rebatch  # pyarrow, which settings and files do not need

        yield from rebatch(self._read(at, skip), rows)

    def _read(self, at: Workplace, skip: int) -> "Iterator[pa.RecordBatch]":
        from driftline.curate.sources.yfcc import reading

        row = 0
        for path in self.inputs(at):
            begin = row
            for start, batch in reading.batches_of(path, row, skip, at.threads):
                row = start + (len(batch) if batch is not None else 0)
                if batch is not None and row > skip:
                    yield batch.slice(max(0, skip - start))
            if row == begin:
                raise BadInput(f"The file {path} is empty.", "Expected YFCC100M records.", "Download it again.")
