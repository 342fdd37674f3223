"""bucket: images → time buckets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from driftline.curate.core.atomic_io import fingerprint, read_json, write_json, write_parquet, writing
from driftline.pipelines.run.attempt import borders_of
from driftline.pipelines.run.stage import Counts, Records, Stage


@dataclass(frozen=True)
class Bucket(Stage):
    """Cut the collection in time."""

    name: ClassVar[str] = "bucket"
    records: ClassVar[Records] = (("members.parquet", ""), ("rejects.parquet", "reason"))
    needs: ClassVar[tuple[str, ...]] = ("fetch",)
    hint: ClassVar[str] = "No photo is in buckets.spans: compare them with the dates of the photos."

    def settings(self) -> Any:
        """How to cut; which buckets stay unlabelled matters to later stages only."""
        return self.context.config.buckets.identity(self.name)

    def outside(self) -> list[Path]:
        """The frozen borders of a run that has grown."""
        return [path] if (path := borders_of(self.context.root, fingerprint(self.settings()))).is_file() else []

    def check(self) -> None:
        """The unlabelled buckets exist, where the settings say how many there will be."""
        settings = self.context.config.buckets
        if (count := settings.fixed_count()) is not None:
            settings.labelled([{"index": i} for i in range(count)])

    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        """index → members.parquet (index + bucket), buckets.json, timeline.svg, rejects.parquet."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        from driftline.curate.bucketing.assign import assign
        from driftline.curate.bucketing.frozen import assign_frozen
        from driftline.curate.images.shards import good
        from driftline.curate.metadata.schema import REJECTS, whole
        from driftline.eval.plotting.files import save
        from driftline.eval.plotting.timeline import timeline

        index = inputs["fetch"] / "index.parquet"
        times = pq.read_table(index, columns=["id", "uploaded", "fault"])
        times = good(times).select(["id", "uploaded"]).combine_chunks()
        uploaded = times["uploaded"].to_numpy().astype(np.int64)
        settings, ids = self.context.config.buckets, whole(times["id"])
        if frozen := self.outside():
            number, buckets = assign_frozen(uploaded, ids, read_json(frozen[0]), settings)
        else:
            number, buckets = assign(uploaded, ids, settings)
        rejects = []
        start = 0
        file = pq.ParquetFile(index)
        schema = file.schema_arrow.append(pa.field("bucket", pa.int32()))
        with (
            writing(out / "members.parquet") as sink,
            pq.ParquetWriter(sink, schema, compression="zstd") as writer,
        ):
            for group in range(file.num_row_groups):  # one row group is in memory at a time
                rows = good(file.read_row_group(group))
                some = number[start : start + len(rows)]
                start += len(rows)
                inside = pa.array(some >= 0)
                writer.write_table(rows.append_column("bucket", pa.array(some, pa.int32())).filter(inside))
                outside = rows.filter(pc.invert(inside))
                reason = pa.array(["outside_buckets"] * len(outside), pa.string())
                detail = pa.nulls(len(outside), pa.string())
                rejects.append(pa.table([outside["id"], outside["row"], reason, detail], schema=REJECTS))
        dropped = pa.concat_tables(rejects) if rejects else REJECTS.empty_table()
        write_parquet(out / "rejects.parquet", dropped)
        save(timeline(uploaded, number, {b.index: b.name for b in buckets}), out / "timeline.svg")
        write_json(out / "buckets.json", [b.plain() for b in buckets])
        return Counts(len(times), len(times) - len(dropped), {"outside_buckets": len(dropped)})
