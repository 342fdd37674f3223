"""ingest: metadata source → table parts; unreadable rows are kept with their reason."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from driftline.curate.core.atomic_io import write_parquet
from driftline.curate.core.files import look_again
from driftline.curate.foreign.s3 import fetch
from driftline.curate.sources.base import FileSource, Workplace
from driftline.pipelines.stages.base import MEMORY, Counts, Records, Stage

ROWS = 65_536  # records a part


class Ingest(Stage):
    """Read the source in parts; finished parts are not read again."""

    name: ClassVar[str] = "ingest"
    records: ClassVar[Records] = (("table/*.parquet", ""), ("rejects/*.parquet", "reason"))
    hint: ClassVar[str] = "See the raw rows in stages/01_ingest/rejects and check collection.source."

    def settings(self) -> Any:
        """The collection section; paths of this machine enter through `outside`."""
        return self.context.config.collection.identity(self.name)

    def plugins(self) -> list[type]:
        """Also the source."""
        return [*super().plugins(), type(self.context.config.collection)]

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
        """Download the metadata from S3, unless it is here already. Begin without what was read before, if the run
        does."""
        if self.context.fresh:
            (self.context.root / MEMORY).unlink(missing_ok=True)
        if (remote := self._remote()) is not None:
            fetch(remote.path, self._place().work, remote.s3, self.context.run_log)
            look_again()

    def _remote(self) -> FileSource | None:
        """The source, if it reads what is on S3."""
        source = self.context.config.collection
        return source if isinstance(source, FileSource) and source.path.startswith("s3://") else None

    def _place(self) -> Workplace:
        root = self.context.root
        return Workplace(root, root / "downloads", self.context.executor.workers, root / MEMORY)

    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        """source → table/part-NNNNN.parquet, rejects/part-NNNNN.parquet; rejects/left_out.parquet: files that are no
        records."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        from driftline.curate.metadata.schema import REJECTS, REPEATED, TABLE, judge_times

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
                good = table.filter(pc.is_null(table["fault"])) if len(faulty) else table  # as a rule there is no copy
                write_parquet(out / "table" / f"part-{number:05d}.parquet", good.select(TABLE.names), REPEATED)
                write_parquet(out / "rejects" / f"part-{number:05d}.parquet", rejects)
                number += 1
                tick(len(table))
        reasons = self._leave_out(out)
        kept = 0
        for path in sorted((out / "rejects").glob("part-*.parquet")):
            reasons.update(pq.read_table(path, columns=["reason"])["reason"].to_pylist())
            kept += _rows(out / "table" / path.name)
        return Counts(kept + sum(reasons.values()), kept, reasons)

    def _leave_out(self, out: Path) -> Counter[str]:
        """Write what is beside the records as rejects without a row; returns their number by reason."""
        import pyarrow as pa

        from driftline.curate.metadata.schema import REJECTS

        rows = self.context.config.collection.left_out(self._place())
        faulty = [{"id": row["id"], "reason": row["fault"], "detail": row["raw"]} for row in rows]
        if faulty:
            write_parquet(out / "rejects" / "left_out.parquet", pa.Table.from_pylist(faulty, schema=REJECTS))
        return Counter(row["reason"] for row in faulty)


def _rows(path: Path) -> int:
    import pyarrow.parquet as pq

    return int(pq.read_metadata(path).num_rows)
