"""fetch: kept rows → shards of checked images; every row without an image has a reason."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from driftline.curate.core.atomic_io import write_json
from driftline.curate.store.database import open_store, register_run
from driftline.pipelines.stages.base import Counts, Records, Stage, parts_of
from driftline.pipelines.stages.state import PLACEHOLDERS


class Fetch(Stage):
    """Download or copy every image; finished shards are not fetched again."""

    name: ClassVar[str] = "fetch"
    records: ClassVar[Records] = (("index.parquet", "fault"),)
    needs: ClassVar[tuple[str, ...]] = ("filter",)
    hint: ClassVar[str] = "stages/03_fetch/index.parquet has the reason and detail of every row."

    parts: ClassVar[str] = r"(\d{5,})\.(?:tar|parquet)"

    def settings(self) -> Any:
        """The fetch section without what cannot change the bytes."""
        return self.context.config.fetch.identity(self.name)

    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        """table → NNNNN.tar, NNNNN.parquet, index.parquet, placeholders.json."""
        from driftline.curate.fetch.job import Again
        from driftline.curate.fetch.run import fetch
        from driftline.pipelines.stages.photos import shared_images

        context, retry = self.context, self.context.retry
        again = None if retry is None else Again(frozenset(retry.reasons), retry.output or out)
        parts = parts_of(inputs["filter"])
        if (store := context.store()) is not None:
            with open_store(store.folder) as base:
                register_run(base, context.root)
        others = context.config.collection.lists_others()
        counts = fetch(parts, out, context.config.fetch, context.run_log, context.executor, again, store, others=others)
        write_json(out / PLACEHOLDERS, shared_images(parts, [out / "index.parquet"]))
        kept = counts.pop("", 0)
        return Counts(kept + sum(counts.values()), kept, counts)
