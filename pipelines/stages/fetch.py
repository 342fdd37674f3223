"""fetch: kept rows → shards of checked images; every miss has a reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet as pq

from curate.fetch import FetchRules, fetch
from curate.fetch.address_guard import is_own
from curate.images.checks import ImageRules
from pipelines.stage import Counts, Records, Stage


@dataclass(frozen=True)
class Fetch(Stage):
    """Download or copy every image; finished shards are not fetched again."""

    name: ClassVar[str] = "fetch"
    records: ClassVar[Records] = (("index.parquet", "fault"),)
    needs: ClassVar[tuple[str, ...]] = ("filter",)
    hint: ClassVar[str] = "The reasons and details of every miss stand in stages/03_fetch/index.parquet."

    def settings(self) -> Any:
        """The fetch section, but what cannot change the bytes."""
        return self.context.config.fetch.model_dump(exclude={"threads", "backoff", "per_host", "rate"})

    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        """table → NNNNN.tar, NNNNN.parquet, index.parquet."""
        parts = sorted((inputs["filter"] / "table").glob("part-*.parquet"))
        faults = fetch(parts, out, self.rules(parts), self.context.run_log, self.context.executor)
        kept = faults.pop("", 0)
        return Counts(kept + sum(faults.values()), kept, faults)

    def rules(self, parts: Sequence[Path]) -> FetchRules:
        """The fetch section. Private addresses, where nothing is said, are allowed to a collection that is made of
        them: judged by the first part that has rows."""
        values = self.context.config.fetch.model_dump()
        images = ImageRules(**{f.name: values.pop(f.name) for f in fields(ImageRules)})
        said = values.pop("private_addresses")
        first = next((part for part in parts if pq.read_metadata(part).num_rows), None)
        own = said == "auto" and first is not None and is_own(pq.read_table(first, columns=["url"])["url"].to_pylist())
        workers = self.context.executor.workers
        rate = values.pop("rate")
        return FetchRules(
            **values, images=images, private=said == "allow" or own, rate=None if rate is None else rate / workers
        )
