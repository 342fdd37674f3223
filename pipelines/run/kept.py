"""What a run keeps when photos leave or come: the images that were asked about, and the sides of its release.

`DIR/kept` has a table of each, named by the digest of the settings that decide it: with others it does not count. The
place of a photo that was withdrawn stays empty: no other photo is asked about or published instead.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from driftline.curate.bucketing.frozen import GROWING, freeze
from driftline.curate.core.atomic_io import read_json, write_json, write_parquet
from driftline.pipelines.run.attempt import BORDERS
from driftline.pipelines.run.stage import Context
from driftline.pipelines.run.state import done_of, folder_of, is_finished
from driftline.pipelines.stages.ask import items_schema
from driftline.pipelines.stages.publish import Publish
from driftline.pipelines.stages.retrieve import Retrieve


def keep_asked(context: Context) -> None:
    """Keep the images that people or the catalogue were asked about, those of later rounds included."""
    for stage, name in (("tally", "asked.parquet"), ("ask", "items.parquet")):
        if is_finished(context.root, stage):
            table = pq.read_table(folder_of(context.root, stage) / name, columns=items_schema().names)
            return _keep(Retrieve(context).asked(), table, ["id", "bucket", "concept"])


def keep_release(context: Context) -> None:
    """Keep classes, groups and sides of the published images."""
    if is_finished(context.root, "publish"):
        table = pq.read_table(folder_of(context.root, "publish") / "release" / "metadata.parquet")
        _keep(Publish(context).sides(), table, ["id"])


def keep_what_stays(context: Context) -> None:
    """Before photos are withdrawn: keep both, and the borders of buckets that are cut by the number of photos."""
    keep_asked(context)
    keep_release(context)
    if context.config.buckets.kind == "equal" and (frozen := frozen_borders(context)) is not None:
        write_json(context.root / BORDERS, frozen)


def frozen_borders(context: Context) -> dict[str, Any] | None:
    """The borders of the finished buckets; None if there are none yet, or the settings have them."""
    if done_of(context.root, "bucket") is None or context.config.buckets.kind not in GROWING:
        return None
    bucketed = folder_of(context.root, "bucket")
    members = pq.read_table(bucketed / "members.parquet", columns=["id", "uploaded", "until", "bucket"])
    return freeze(read_json(bucketed / "buckets.json"), members.combine_chunks(), context.config.buckets)


def _keep(path: Path, table: pa.Table, keys: list[str]) -> None:
    """Write the table, and the rows of the file before that it lacks: of photos that have left."""
    if path.is_file():
        before = pq.read_table(path)
        left = before.join(table.select(keys), keys, join_type="left anti").select(table.column_names)
        table = pa.concat_tables([table, left])
    write_parquet(path, table.combine_chunks())
