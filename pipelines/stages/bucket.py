"""bucket: images → time buckets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.bucketing.assign import BucketRules, assign
from curate.bucketing.timeline_plot import timeline
from curate.core.atomic_io import write_bytes, write_json, write_parquet, writing
from curate.images.shards import good
from curate.metadata.schema import REJECTS, whole
from pipelines.stage import Counts, Records, Stage


@dataclass(frozen=True)
class Bucket(Stage):
    """Cut the collection in time."""

    name: ClassVar[str] = "bucket"
    records: ClassVar[Records] = (("members.parquet", ""), ("rejects.parquet", "reason"))
    needs: ClassVar[tuple[str, ...]] = ("fetch",)
    hint: ClassVar[str] = "The given spans hold no photo: compare buckets.spans with the upload times."

    def settings(self) -> Any:
        """How to cut; which buckets stay unlabelled is a matter of later stages."""
        return self.context.config.buckets.model_dump(exclude={"unlabelled"})

    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        """index → members.parquet (index + bucket), buckets.json, timeline.png, rejects.parquet."""
        index = inputs["fetch"] / "index.parquet"
        section = self.context.config.buckets
        rules = BucketRules(section.kind, section.count, section.unit, section.cuts, section.spans, section.ties)
        times = pq.read_table(index, columns=["id", "uploaded", "fault"])
        times = good(times).select(["id", "uploaded"]).combine_chunks()
        uploaded = times["uploaded"].to_numpy().astype(np.int64)
        where, buckets = assign(uploaded, whole(times["id"]), rules)
        rejects, gap = 0, []
        begin = 0
        file = pq.ParquetFile(index)
        schema = file.schema_arrow.append(pa.field("bucket", pa.int32()))
        with (
            writing(out / "members.parquet") as sink,
            pq.ParquetWriter(sink, schema, compression="zstd") as writer,
        ):
            for number in range(file.num_row_groups):  # one row group is in memory at a time
                rows = good(file.read_row_group(number))
                here = where[begin : begin + len(rows)]
                begin += len(rows)
                inside = pa.array(here >= 0)
                writer.write_table(rows.append_column("bucket", pa.array(here, pa.int32())).filter(inside))
                left = rows.filter(pc.invert(inside))
                rejects += len(left)
                reason = pa.array(["outside_buckets"] * len(left), pa.string())
                gap.append(
                    pa.table([left["id"], left["row"], reason, pa.nulls(len(left), pa.string())], schema=REJECTS)
                )
        write_parquet(out / "rejects.parquet", pa.concat_tables(gap) if gap else REJECTS.empty_table())
        write_bytes(out / "timeline.png", timeline(uploaded, buckets))
        write_json(out / "buckets.json", [b.plain() for b in buckets])
        return Counts(len(times), len(times) - rejects, {"outside_buckets": rejects})
