"""ingest: metadata source → table parts; unreadable rows are kept with their reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.core.atomic_io import write_parquet
from curate.core.s3 import fetch
from curate.metadata.schema import REJECTS, REPEATED, TABLE, judge_times
from curate.sources.base import FileSource, Workplace
from pipelines.stage import Counts, Records, Stage

ROWS = 65_536  # records a part


@dataclass(frozen=True)
class Ingest(Stage):
    """Read the source in parts; finished parts are not read again."""

    name: ClassVar[str] = "ingest"
    records: ClassVar[Records] = (("table/*.parquet", ""), ("rejects/*.parquet", "reason"))
    hint: ClassVar[str] = "See the raw rows in stages/01_ingest/rejects and check collection.source."

    def settings(self) -> Any:
        """The collection section; paths of this machine enter through `outside`."""
        return self.context.config.collection.identity(self.name)

    def outside(self) -> list[Path]:
        """The files of the source that exist on this machine."""
        remote = self._remote()
        if remote is not None and not self._place().path(remote.path).exists():
            return []
        return self.context.config.collection.inputs(self._place())

    def check(self) -> None:
        """The source is there."""
        self.outside()

    def prepare(self) -> None:
        """Download the metadata from S3, unless it is here already."""
        if (remote := self._remote()) is not None:
            fetch(remote.path, self._place().work, remote.s3, self.context.run_log)

    def _remote(self) -> FileSource | None:
        """The source, if it reads what is on S3."""
        source = self.context.config.collection
        return source if isinstance(source, FileSource) and source.path.startswith("s3://") else None

    def _place(self) -> Workplace:
        root = self.context.root
        return Workplace(root, root / "downloads", self.context.executor.workers)

    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        """source → table/part-NNNNN.parquet, rejects/part-NNNNN.parquet."""
        done = sorted((out / "rejects").glob("part-*.parquet"))
        skip = sum(_rows(out / "table" / p.name) + _rows(p) for p in done)
        number = len(done)
        with self.context.run_log.progress("ingest", None, "rows") as tick:
            tick(skip)
            for batch in self.context.config.collection.batches(ROWS, skip, self._place()):
                table = judge_times(pa.Table.from_batches([batch]))
                faulty = table.filter(pc.is_valid(table["fault"]))
                rejects = pa.Table.from_arrays(
                    [faulty["id"], faulty["row"], faulty["fault"], faulty["raw"]], schema=REJECTS
                )
                good = table.filter(pc.is_null(table["fault"])).select(TABLE.names)
                write_parquet(out / "table" / f"part-{number:05d}.parquet", good, REPEATED)
                write_parquet(out / "rejects" / f"part-{number:05d}.parquet", rejects)
                number += 1
                tick(len(table))
        reasons: Counter[str] = Counter()
        kept = 0
        for path in sorted((out / "rejects").glob("part-*.parquet")):
            reasons.update(pq.read_table(path, columns=["reason"])["reason"].to_pylist())
            kept += _rows(out / "table" / path.name)
        return Counts(kept + sum(reasons.values()), kept, reasons)


def _rows(path: Path) -> int:
    return int(pq.read_metadata(path).num_rows)
