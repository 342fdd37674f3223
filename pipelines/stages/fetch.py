"""fetch: kept rows → shards of checked images; every row without an image has a reason."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from driftline.curate.fetch.outcome import SMALLER
from driftline.curate.store.database import open_store, register_run
from driftline.pipelines.run.stage import Counts, Records, Stage, parts_of


@dataclass(frozen=True)
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
        """table → NNNNN.tar, NNNNN.parquet, index.parquet."""
        from driftline.curate.fetch.run import Again, fetch

        context, retry = self.context, self.context.retry
        again = None if retry is None else Again(frozenset(retry.reasons), retry.output or out, retry.before)
        parts = parts_of(inputs["filter"])
        if (store := context.store()) is not None:
            with open_store(store.folder) as base:
                register_run(base, context.root)
        source = context.config.collection
        others = source.lists_others()
        counts = fetch(
            parts,
            out,
            context.config.fetch,
            context.run_log,
            context.executor,
            again,
            store,
            others=others,
        )
        if others and (sizes := smaller_sizes(out / "index.parquet")):
            named = ", ".join(f"{size} {n:,}" for size, n in sorted(sizes.items()))
            context.run_log.say(f"{sizes.total():,} photos are not served in the size that was asked for: {named}.")
        kept = counts.pop("", 0)
        return Counts(kept + sum(counts.values()), kept, counts)


def smaller_sizes(index: Path) -> Counter[str]:
    """How many photos came from the address of a smaller size, by the size that was requested there."""
    import pyarrow.parquet as pq

    sizes, start = Counter[str](), f"from the {SMALLER};"
    with pq.ParquetFile(index) as file:
        for batch in file.iter_batches(columns=["changes", "detail"]):
            rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            sizes.update(str(changes).partition("; ")[0] for changes, note in rows if (note or "").startswith(start))
    return sizes
