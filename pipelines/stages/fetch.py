"""fetch: kept rows → shards of checked images; every row without an image has a reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from curate.fetch import fetch
from pipelines.stage import Counts, Records, Stage, parts_of


@dataclass(frozen=True)
class Fetch(Stage):
    """Download or copy every image; finished shards are not fetched again."""

    name: ClassVar[str] = "fetch"
    records: ClassVar[Records] = (("index.parquet", "fault"),)
    needs: ClassVar[tuple[str, ...]] = ("filter",)
    hint: ClassVar[str] = "stages/03_fetch/index.parquet has the reason and detail of every row."

    def settings(self) -> Any:
        """The fetch section without what cannot change the bytes."""
        return self.context.config.fetch.identity(self.name)

    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        """table → NNNNN.tar, NNNNN.parquet, index.parquet."""
        context = self.context
        counts = fetch(parts_of(inputs["filter"]), out, context.config.fetch, context.run_log, context.executor)
        kept = counts.pop("", 0)
        return Counts(kept + sum(counts.values()), kept, counts)
