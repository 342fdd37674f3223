"""fetch: kept rows → shards of checked images; every miss has a reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet as pq

from curate.fetch import FetchRules, fetch
from curate.images import ImageRules
from pipelines.stage import Counts, Stage


@dataclass(frozen=True)
class Fetch(Stage):
    """Download (img2dataset) or copy every image; finished shards are not fetched again."""

    name: ClassVar[str] = "fetch"
    needs: ClassVar[tuple[str, ...]] = ("filter",)
    hint: ClassVar[str] = "The reasons and details of every miss stand in stages/03_fetch/index.parquet."

    def settings(self) -> Any:
        """The fetch section, but what cannot change the bytes."""
        return self.context.config.fetch.model_dump(exclude={"threads", "backoff"})

    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        """table → NNNNN.tar, NNNNN.parquet, index.parquet."""
        section = self.context.config.fetch
        parts = sorted((inputs["filter"] / "table").glob("part-*.parquet"))
        rows = pq.read_table(parts, columns=["id", "row", "url", "path", "uploaded"])
        rules = FetchRules(
            section.shard_size, section.stop_after, section.timeout, section.retries, section.backoff, section.threads,
            ImageRules(section.min_edge, section.max_aspect, section.max_pixels, section.max_bytes),
        )  # fmt: skip
        faults = fetch(rows, out, rules, self.context.journal, self.context.workers)
        kept = faults.pop("", 0)
        return Counts(len(rows), kept, faults)
