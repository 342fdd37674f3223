"""bucket: images → time buckets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from curate.buckets import BucketRules, assign
from curate.ground.files import write_json, write_parquet
from curate.shards import good, load_index
from curate.table import rejects_table
from pipelines.stage import Counts, Stage


@dataclass(frozen=True)
class Bucket(Stage):
    """Cut the collection in time."""

    name: ClassVar[str] = "bucket"
    needs: ClassVar[tuple[str, ...]] = ("fetch",)
    hint: ClassVar[str] = "The given spans hold no photo: compare buckets.spans with the upload times."

    def settings(self) -> Any:
        """How to cut; which buckets stay unlabelled is a matter of later stages."""
        return self.context.config.buckets.model_dump(exclude={"unlabelled"})

    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        """index → members.parquet (index + bucket), buckets.json, rejects.parquet."""
        index = good(load_index(inputs["fetch"]))
        section = self.context.config.buckets
        rules = BucketRules(section.kind, section.count, section.unit, section.cuts, section.spans, section.ties)
        where, buckets = assign(index["uploaded"].to_numpy().astype(np.int64), index["id"].to_pylist(), rules)
        inside = pa.array(where >= 0)
        members = index.append_column("bucket", pa.array(where, pa.int32())).filter(inside)
        gap = index.filter(pa.array(where < 0))
        rows = [
            {"id": i, "row": r, "reason": "outside_buckets"}
            for i, r in zip(gap["id"].to_pylist(), gap["row"].to_pylist(), strict=True)
        ]
        write_parquet(out / "members.parquet", members)
        write_parquet(out / "rejects.parquet", rejects_table(rows))
        write_json(out / "buckets.json", [b.plain() for b in buckets])
        return Counts(len(index), len(members), {"outside_buckets": len(gap)})
