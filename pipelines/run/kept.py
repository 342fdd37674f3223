"""What a run keeps when photos leave or come: the images that were asked about, and the sides of its release.

`DIR/kept` has a table of each, named by the digest of the settings that decide it: with others it does not count. The
place of a photo that was withdrawn stays empty: no other photo is asked about or published instead.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.curate.bucketing.assign import GROWING, freeze
from driftline.curate.core.atomic_io import read_json, write_json, write_parquet
from driftline.pipelines.run.stage import Context
from driftline.pipelines.run.state import StageState, done_of, folder_of, is_finished
from driftline.pipelines.stages.ask import items_of
from driftline.pipelines.stages.bucket import Bucket
from driftline.pipelines.stages.publish import Publish
from driftline.pipelines.stages.retrieve import Retrieve
from driftline.pipelines.stages.tally import Tally


def keep_asked(context: Context) -> None:
    """Keep the candidates that these settings chose, those of later rounds included: people were asked about them."""
    retrieve, tally = Retrieve(context), Tally(context)
    if StageState(retrieve).was_current:
        table = items_of(folder_of(context.root, "retrieve"))
        if StageState(tally).was_current:
            later = pq.read_table(folder_of(context.root, "tally") / "asked.parquet", filters=pc.field("round") > 1)
            table = pa.concat_tables([table, later.select(table.column_names)])
        _keep(retrieve.asked(), table, ["id", "bucket", "concept"])


def keep_release(context: Context) -> None:
    """Keep groups and sides of the published images, if the splits are those of the settings."""
    place = folder_of(context.root, "publish") / "release"
    facts = read_json(place / "release.json") if is_finished(context.root, "publish") else None
    if facts and (facts["provenance"]["seed"], len(facts["splits"])) == (
        context.config.seed, context.config.release.splits
    ):  # fmt: skip
        _keep(Publish(context).sides(), pq.read_table(place / "metadata.parquet"), ["id"])


def keep_what_stays(context: Context) -> None:
    """Before photos are withdrawn: keep both, and the borders of buckets that are cut by the number of photos."""
    keep_asked(context)
    keep_release(context)
    if context.config.buckets.kind == "equal" and (frozen := frozen_borders(context)) is not None:
        write_json(Bucket(context).borders(), frozen)


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
