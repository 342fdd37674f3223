"""filter: table → table without faulty rows; rejects kept with their reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet as pq

from curate.filters import FilterRules, drop_faulty
from curate.ground.files import write_parquet
from curate.table import rejects_table
from pipelines.stage import Counts, Stage


@dataclass(frozen=True)
class FilterTable(Stage):
    """Drop the rows with a fault; count each drop under the fault's name."""

    name: ClassVar[str] = "filter"
    needs: ClassVar[tuple[str, ...]] = ("ingest",)
    hint: ClassVar[str] = (
        "For photos of your own, set filter.upload_after_capture: false; no_upload_date means that no photo carries a "
        "date (folders: EXIF DateTimeOriginal)."
    )

    def settings(self) -> Any:
        """The filter section."""
        return self.context.config.filter.model_dump()

    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        """table/*.parquet → table/*.parquet and rejects/*.parquet, part by part."""
        rules = FilterRules(**self.context.config.filter.model_dump())
        seen: set[str] = set()
        reasons: Counter[str] = Counter()
        kept = 0
        parts = sorted((inputs["ingest"] / "table").glob("part-*.parquet"))
        with self.context.journal.progress("filter", sum(pq.read_metadata(p).num_rows for p in parts), "rows") as tick:
            for part in parts:
                table = pq.read_table(part)
                good, dropped = drop_faulty(table, rules, seen)
                reasons.update(reason for _, _, reason in dropped)
                kept += len(good)
                write_parquet(out / "table" / part.name, good)
                rows = [{"id": i, "row": r, "reason": reason} for i, r, reason in sorted(dropped, key=lambda d: d[1])]
                write_parquet(out / "rejects" / part.name, rejects_table(rows))
                tick(len(table))
        return Counts(kept + sum(reasons.values()), kept, reasons)
