"""filter: table → the rows that pass all filters; dropped rows are kept with their reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from driftline.curate.metadata.settings import FilterSettings
from driftline.pipelines.run.stage import Counts, Records, Stage


@dataclass(frozen=True)
class FilterTable(Stage):
    """Drop rows; count each under the first reason that applies."""

    name: ClassVar[str] = "filter"
    records: ClassVar[Records] = (("rejects/*.parquet", "reason"), ("table/*.parquet", ""))
    needs: ClassVar[tuple[str, ...]] = ("ingest",)
    hint: ClassVar[str] = (
        "For your own photos, set filter.upload_after_capture: false; no_upload_date means that no photo has a date: "
        "driftline dropped DIR shows the photos and where dates were looked for."
    )

    def settings(self) -> Any:
        """The filter section; the list of withdrawn ids enters through `outside`."""
        return self.context.config.filter.identity(self.name)

    def outside(self) -> list[Path]:
        """The list of withdrawn ids."""
        withdrawn = self._withdrawn()
        return [] if withdrawn is None else [withdrawn]

    def check(self) -> None:
        """The list of withdrawn ids and the expression can be read."""
        from driftline.curate.metadata.filters import check

        check(self._located())

    def _located(self) -> FilterSettings:
        withdrawn = self._withdrawn()
        settings = self.context.config.filter
        return settings if withdrawn is None else settings.model_copy(update={"withdrawn": str(withdrawn)})

    def _withdrawn(self) -> Path | None:
        path = self.context.config.filter.withdrawn
        return None if path is None else self.context.path(path)

    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        """table/*.parquet → table/*.parquet and rejects/*.parquet, part by part."""
        from driftline.curate.metadata.filtering import filter_table

        parts = sorted((inputs["ingest"] / "table").glob("part-*.parquet"))
        counts = filter_table(parts, out, self._located(), self.context.run_log, self.context.executor)
        kept = counts.pop("", 0)
        return Counts(kept + sum(counts.values()), kept, counts)
