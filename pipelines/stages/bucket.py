"""bucket: images → time buckets."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from driftline.curate.core.atomic_io import fingerprint, read_json, write_json, write_parquet, writing
from driftline.pipelines.stages.base import Counts, Records, Stage
from driftline.pipelines.stages.state import borders_of

if TYPE_CHECKING:
    import pyarrow as pa


class Bucket(Stage):
    """Cut the collection in time."""

    name: ClassVar[str] = "bucket"
    records: ClassVar[Records] = (("members.parquet", ""), ("rejects.parquet", "reason"))
    needs: ClassVar[tuple[str, ...]] = ("fetch",)
    hint: ClassVar[str] = "No photo is in a bucket: compare buckets with the dates of the photos."

    def settings(self) -> Any:
        """How to cut; which buckets stay unlabelled matters to later stages only."""
        return self.context.config.buckets.identity(self.name)

    def outside(self) -> list[Path]:
        """The frozen borders of a run that has grown."""
        return [path] if (path := self.borders()).is_file() else []

    def borders(self) -> Path:
        """Where the frozen borders are, if the run has grown, or photos were withdrawn."""
        grown = borders_of(self.context.root, mark := fingerprint(self.settings()))
        return grown if grown.is_file() else self.context.root / "kept" / f"borders-{mark[:16]}.json"

    def check(self) -> None:
        """The unlabelled buckets exist, where the settings say how many there will be."""
        settings = self.context.config.buckets
        if (count := settings.fixed_count()) is not None:
            settings.labelled([{"index": i} for i in range(count)])

    def run(self, inputs: Mapping[str, Path], out: Path) -> Counts:
        """index → members.parquet (index + bucket), buckets.json, undecided.json, timeline.svg,
        rejects.parquet."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        from driftline.curate.bucketing.assign import THIN, UNDECIDED, assign, assign_frozen, most_concerned, times_of
        from driftline.curate.images.shards import good
        from driftline.curate.metadata.schema import REJECTS, replaced, whole
        from driftline.eval.plotting.cells import timeline
        from driftline.eval.plotting.charts import save

        index = inputs["fetch"] / "index.parquet"
        photos = pq.read_table(index, columns=["id", "uploaded", "until", "fault"])
        photos = good(photos).select(["id", "uploaded", "until"]).combine_chunks()
        first, last = times_of(photos)
        settings, ids = self.context.config.buckets, whole(photos["id"])
        if (frozen := self.borders()).is_file():
            number, buckets = assign_frozen(first, ids, read_json(frozen), settings, last)
        else:
            number, buckets = assign(first, ids, settings, last)
        rejects = []
        start = 0
        file = pq.ParquetFile(index)
        schema = file.schema_arrow.append(pa.field("bucket", pa.int32()))
        with writing(out / "members.parquet") as sink, pq.ParquetWriter(sink, schema, compression="zstd") as writer:
            for group in range(file.num_row_groups):  # one row group is in memory at a time
                rows = good(file.read_row_group(group))
                part = slice(start, start + len(rows))
                start += len(rows)
                rows = replaced(rows, "until", pa.array(last[part], mask=first[part] == last[part]))
                inside = pa.array(number[part] >= 0)
                writer.write_table(rows.append_column("bucket", pa.array(number[part], pa.int32())).filter(inside))
                outside = rows.filter(pc.invert(inside))
                why = number[part][number[part] < 0]
                of_two = pa.array(why == UNDECIDED)
                reason = pc.if_else(pa.array(why == THIN), "thin_period", "outside_buckets")
                reason = pc.if_else(of_two, "date_undecided", reason).cast(pa.string())
                detail = pc.if_else(of_two, pa.array(_intervals(outside), pa.string()), pa.scalar(None, pa.string()))
                rejects.append(pa.table([outside["id"], outside["row"], reason, detail], schema=REJECTS))
        dropped = pa.concat_tables(rejects) if rejects else REJECTS.empty_table()
        write_parquet(out / "rejects.parquet", dropped)
        save(timeline(first, number, {b.index: b.name for b in buckets}), out / "timeline.svg")
        write_json(out / "buckets.json", [b.plain() for b in buckets])
        write_json(out / "undecided.json", most_concerned(first, last, number, buckets))
        reasons = Counter(dropped["reason"].to_pylist())
        return Counts(len(photos), len(photos) - len(dropped), reasons)


def _intervals(rows: "pa.Table") -> list[str]:
    """From when to when each upload may have been."""
    from driftline.curate.core.times.dates import iso

    pairs = zip(rows["uploaded"].to_pylist(), rows["until"].to_pylist(), strict=True)
    return [f"{iso(first)} to {iso(first if last is None else last)}" for first, last in pairs]
