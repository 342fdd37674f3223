"""filter: table → table without faulty rows; rejects kept with their reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from curate.metadata.filtering import sift
from curate.metadata.filters import FilterRules
from pipelines.stage import Counts, Records, Stage


@dataclass(frozen=True)
class FilterTable(Stage):
    """Drop the rows with a fault; count each drop under the fault's name."""

    name: ClassVar[str] = "filter"
    records: ClassVar[Records] = (("rejects/*.parquet", "reason"), ("table/*.parquet", ""))
    needs: ClassVar[tuple[str, ...]] = ("ingest",)
    hint: ClassVar[str] = (
        "For photos of your own, set filter.upload_after_capture: false; no_upload_date means that no photo carries a "
        "date (folders: EXIF DateTimeOriginal)."
    )

    def rules(self) -> FilterRules:
        """The filter section, its paths resolved."""
        values = self.context.config.filter.model_dump()
        values["withdrawn"] = None if values["withdrawn"] is None else self.context.path(values["withdrawn"])
        return FilterRules(**values)

    def settings(self) -> Any:
        """The filter section; the list of withdrawn ids enters through `outside`."""
        return self.context.config.filter.model_dump(exclude={"withdrawn"})

    def outside(self) -> list[Path]:
        """The list of withdrawn ids."""
        withdrawn = self.rules().withdrawn
        return [withdrawn] if withdrawn is not None and withdrawn.is_file() else []

    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        """table/*.parquet → table/*.parquet and rejects/*.parquet, part by part."""
        parts = sorted((inputs["ingest"] / "table").glob("part-*.parquet"))
        counts = sift(parts, out, self.rules(), self.context.run_log, self.context.executor)
        kept = counts.pop("", 0)
        return Counts(kept + sum(counts.values()), kept, counts)
