"""ask: candidates → a batch of questions for workers; then the run waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.ground.files import write_parquet
from curate.shards import read_images
from curate.validation.batches import write_batch
from pipelines.stage import Counts, Stage
from pipelines.stages.retrieve import concepts_of

ITEMS = pa.schema([("id", pa.string()), ("bucket", pa.int32()), ("concept", pa.string()), ("score", pa.float32())])


@dataclass(frozen=True)
class Ask(Stage):
    """Write the batch (MTurk requester-UI CSV, question page, images under opaque names)."""

    name: ClassVar[str] = "ask"
    needs: ClassVar[tuple[str, ...]] = ("fetch", "bucket", "retrieve")

    def settings(self) -> Any:
        """What workers see, and the order in which they see it."""
        config = self.context.config
        keys = {"method", "image_base_url", "workers", "reward_usd"}
        concepts = [[c.name, c.option] for c in concepts_of(config)]
        return [config.seed, config.validation.model_dump(include=keys), concepts]

    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        """candidates → items.parquet, batch.csv, page.html, images/, batch.json."""
        config = self.context.config
        candidates = pq.read_table(inputs["retrieve"] / "candidates.parquet")
        kept = pc.is_in(candidates["fate"], value_set=pa.array(["kept", "background"]))
        items = candidates.filter(kept).select(ITEMS.names)
        write_parquet(out / "items.parquet", items)
        if config.validation.method == "crowd":
            expected = dict(zip(items["id"].to_pylist(), items["concept"].to_pylist(), strict=True))
            found = images_of(inputs["fetch"], inputs["bucket"], set(expected))
            asked = [(id_, expected[id_], *found[id_]) for id_ in sorted(expected)]
            section = config.validation
            facts = write_batch(
                asked,
                concepts_of(config),
                out,
                config.seed,
                section.workers,
                section.reward_usd,
                section.image_base_url,
            )
            self.context.journal.say(
                f"ask: {len(asked):,} images × {section.workers} workers, about ${facts['estimate_usd']:,.2f} with fees"
            )
        return Counts(len(items), len(items), {})


def images_of(fetched: Path, bucketed: Path, wanted: set[str]) -> dict[str, tuple[bytes, str]]:
    """id → (bytes, extension) of some images, checksums verified."""
    members = pq.read_table(bucketed / "members.parquet")
    chosen = members.filter(pc.is_in(members["id"], value_set=pa.array(sorted(wanted), pa.string())))
    extension = {
        id_: member.rpartition(".")[2]
        for id_, member in zip(chosen["id"].to_pylist(), chosen["member"].to_pylist(), strict=True)
    }
    shards = sorted(set(chosen["shard"].to_pylist()))
    return {id_: (data, extension[id_]) for shard in shards for id_, data in read_images(fetched, chosen, shard)}
