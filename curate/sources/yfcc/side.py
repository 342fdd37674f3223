"""YFCC100M's side files: one value a photo (`id<TAB>value`), line i for line i of the whole data set.

If the ids agree line by line, the files are read in step. If not (a subset of the data set), the side file is converted
to Parquet once, and every batch reads its own ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.curate.core.atomic_io import writing
from driftline.curate.core.errors import BadInput, MissingFile
from driftline.curate.metadata.schema import whole
from driftline.curate.sources.yfcc import lines

SCHEMA = pa.schema([("id", pa.string()), ("value", pa.string())])


class Side:
    """One side file. name: autotags, exif, hash, lines or places. work: folder for the Parquet form."""

    def __init__(self, name: str, path: Path, work: Path, threads: int) -> None:
        if not path.is_file():
            raise MissingFile(f"There is no file {path}.", f"Expected the side file {name}.", "Check collection.side.")
        self.name, self.path, self.work, self.threads = name, path, work, threads
        self._step: Iterator[pa.Table] | None = self._tables()
        self._ahead = SCHEMA.empty_table()

    def values(self, ids: pa.Array, skipped: int = 0) -> pa.Array:
        """ids (N,) string of the next records (null where a record has none) → values (N,) string, null = none.

        skipped: number of records that were skipped since the last call.
        """
        if self._step is not None:
            n = skipped + len(ids)
            while len(self._ahead) < n and (table := next(self._step, None)) is not None:
                self._ahead = pa.concat_tables([self._ahead, table])
            part = self._ahead.slice(skipped, len(ids))
            if len(part) == len(ids) and _agree(ids, whole(part["id"])):
                self._ahead = self._ahead.slice(n)
                return whole(part["value"])
            self._step, self._ahead = None, SCHEMA.empty_table()
        return self._by_id(ids)

    def _by_id(self, ids: pa.Array) -> pa.Array:
        form = self.work / "side" / f"{self.name}.parquet"
        if not form.is_file():
            with writing(form) as file, pq.ParquetWriter(file, SCHEMA, compression="zstd") as writer:
                for table in self._tables():
                    writer.write_table(table)

        import pyarrow.dataset as ds  # imports pandas

        rows = ds.dataset(form).to_table(filter=pc.field("id").isin(ids))
        # of several lines of an id the first counts, as for rows of a photo
        pairs = list(zip(rows["id"].to_pylist(), rows["value"].to_pylist(), strict=True))
        first = dict(reversed(pairs))
        return pa.array([first.get(key) for key in ids.to_pylist()], pa.string())

    def _tables(self) -> Iterator[pa.Table]:
        count = 0
        for block in lines.blocks(self.path, self.threads):
            keys: list[str | None] = []
            values: list[str | None] = []
            for line in block[:-1].decode("utf-8", "replace").split("\n"):
                parts = line.rstrip("\r").split("\t")
                if self.name == "lines":  # this file has the id in the second column
                    parts.reverse()
                # a line that is not a pair keeps its place, so that the following lines still agree
                keys.append(parts[0] if len(parts) == 2 else None)
                values.append((parts[1].replace("\x00", "\ufffd") or None) if len(parts) == 2 else None)
            count += len(keys)
            yield pa.table([pa.array(keys, pa.string()), pa.array(values, pa.string())], schema=SCHEMA)
        if not count:
            raise BadInput(f"The side file {self.path} is empty.", "Expected one photo a line.")


def _agree(ids: pa.Array, others: pa.Array) -> bool:
    """Whether all ids that are known on both sides are equal, and at least one is."""
    same = pc.equal(ids, others)
    return bool(pc.all(same, skip_nulls=True, min_count=1).as_py())


def extra(ids: pa.Array, sides: Sequence[Side], skipped: int) -> pa.Array:
    """One JSON object a record with the values of the side files; null for a record without any."""
    import json

    columns = {side.name: side.values(ids, skipped).to_pylist() for side in sides}
    objects = np.full(len(ids), None, object)
    for i in range(len(ids)):
        present = {name: values[i] for name, values in columns.items() if values[i] is not None}
        if present:
            objects[i] = json.dumps(present, ensure_ascii=False, sort_keys=True)
    return pa.array(objects, pa.string())
