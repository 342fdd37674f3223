from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from driftline.ext import HERE, BadInput, FileSource, MissingFile, Workplace, records_of


class Diary(FileSource):
    """A text file with one photo per line: a date, a space, the image file."""

    separator: str = " "
    """between date and image file"""

    def inputs(self, at: Workplace = HERE) -> list[Path]:
        path = at.path(self.path)
        if not path.is_file():
            raise MissingFile(f"{path} does not exist.", "Expected one photo per line.", "Check collection.path.")
        return [path]

    def batches(self, rows: int = 65_536, skip: int = 0, at: Workplace = HERE) -> Iterator[pa.RecordBatch]:
        (path,) = self.inputs(at)
        lines = path.read_text(encoding="utf-8").splitlines()
        if not lines:
            raise BadInput(f"{path} is empty.", "Expected one photo per line.")
        columns = {"uploaded": "date", "path": "file"}
        for start in range(skip, len(lines), rows):
            parts = [line.partition(self.separator) for line in lines[start : start + rows]]
            values = [{"date": date, "file": file} for date, _, file in parts]
            yield records_of(pa.Table.from_pylist(values), columns, start, path.parent.resolve())
