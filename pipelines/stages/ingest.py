"""ingest: metadata source → table parts; unreadable rows are kept with their reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.ground.files import write_parquet
from curate.sources import SOURCES, Source
from curate.table import REJECTS, TABLE
from pipelines.stage import Counts, Stage

ROWS = 65_536  # records a part


@dataclass(frozen=True)
class Ingest(Stage):
    """Read the source in parts; finished parts are not read again."""

    name: ClassVar[str] = "ingest"
    hint: ClassVar[str] = "Look at the raw rows in stages/01_ingest/rejects and check collection.source."

    def settings(self) -> Any:
        """The collection section; its path enters through `outside`."""
        return self.context.config.collection.model_dump(exclude={"path", "root"})

    def outside(self) -> list[Path]:
        """The files of the source."""
        return self.source().inputs()

    def source(self) -> Source:
        """The configured source."""
        section = self.context.config.collection
        kind = SOURCES[section.source]
        values: dict[str, Any] = section.model_dump()
        values["path"] = self.context.path(section.path)
        values["threads"] = self.context.engine.workers
        values["root"] = None if section.root is None else self.context.path(section.root)
        made: Source = kind(**{f.name: values[f.name] for f in fields(kind)})
        return made

    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        """source → table/part-NNNNN.parquet, rejects/part-NNNNN.parquet."""
        done = sorted((out / "rejects").glob("part-*.parquet"))
        skip = sum(_rows(out / "table" / p.name) + _rows(p) for p in done)
        number = len(done)
        with self.context.journal.progress("ingest", None, "rows") as tick:
            tick(skip)
            for batch in self.source().batches(ROWS, skip):
                table = pa.Table.from_batches([batch])
                faulty = table.filter(pc.is_valid(table["fault"]))
                rejects = pa.Table.from_arrays(
                    [faulty["id"], faulty["row"], faulty["fault"], faulty["raw"]], schema=REJECTS
                )
                good = table.filter(pc.is_null(table["fault"])).select(TABLE.names)
                write_parquet(out / "table" / f"part-{number:05d}.parquet", good)
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
