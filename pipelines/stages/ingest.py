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

from curate.core.atomic_io import write_parquet
from curate.core.s3 import S3Rules, fetch
from curate.metadata.schema import REJECTS, REPEATED, TABLE
from curate.sources import SOURCES, Source
from pipelines.stage import Counts, Records, Stage

ROWS = 65_536  # records a part


@dataclass(frozen=True)
class Ingest(Stage):
    """Read the source in parts; finished parts are not read again."""

    name: ClassVar[str] = "ingest"
    records: ClassVar[Records] = (("table/*.parquet", ""), ("rejects/*.parquet", "reason"))
    hint: ClassVar[str] = "Look at the raw rows in stages/01_ingest/rejects and check collection.source."

    def settings(self) -> Any:
        """The collection section; paths of this machine enter through `outside`."""
        section = self.context.config.collection
        plain = section.model_dump(exclude={"path", "root", "side", "rate", "s3"})
        return {**plain, "side": sorted(section.side), "address": section.path if "://" in section.path else None}

    def outside(self) -> list[Path]:
        """The files of the source, as far as they are here."""
        if self.context.config.collection.path.startswith("s3://") and not self.local().exists():
            return []
        return self.source().inputs()

    def local(self) -> Path:
        """Where the metadata lies, or will lie after it was fetched from S3."""
        path = self.context.config.collection.path
        if path.startswith("s3://"):
            return self.context.root / "downloads" / path.removeprefix("s3://").rstrip("/")
        return self.context.path(path)

    def source(self) -> Source:
        """The configured source."""
        section = self.context.config.collection
        kind = SOURCES[section.source]
        values: dict[str, Any] = section.model_dump()
        web = section.path.startswith(("http://", "https://"))
        values["path"] = section.path if web else self.local()
        values["threads"] = self.context.executor.workers
        values["work"] = self.context.root / "downloads"
        values["side"] = {name: self.context.path(path) for name, path in section.side.items()}
        values["root"] = None if section.root is None else self.context.path(section.root)
        made: Source = kind(**{f.name: values[f.name] for f in fields(kind)})
        return made

    def prepare(self) -> None:
        """Fetch the metadata from S3, if that is where it is; what is here is not fetched again."""
        section = self.context.config.collection
        if section.path.startswith("s3://"):
            rules = S3Rules(**section.s3.model_dump())
            fetch(section.path, self.context.root / "downloads", rules, self.context.run_log)

    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        """source → table/part-NNNNN.parquet, rejects/part-NNNNN.parquet."""
        done = sorted((out / "rejects").glob("part-*.parquet"))
        skip = sum(_rows(out / "table" / p.name) + _rows(p) for p in done)
        number = len(done)
        with self.context.run_log.progress("ingest", None, "rows") as tick:
            tick(skip)
            for batch in self.source().batches(ROWS, skip):
                table = pa.Table.from_batches([batch])
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
