"""What a plan says of the source's contents: its files, its columns, and its dates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from driftline.curate.bucketing.assign import assign
from driftline.curate.metadata.clocks import PRECISION, reset_clocks
from driftline.curate.metadata.schema import whole
from driftline.curate.sources.base import FileSource, TableSource, Workplace
from driftline.curate.sources.folder import Folder
from driftline.pipelines.run.stage import Context

ZONES = 14 * 3600  # seconds that a clock may be from UTC
EXACT = ("minute", "second")  # precisions of a time that a clock showed


def place_of(context: Context) -> Workplace:
    """Where the source works."""
    return Workplace(context.root, context.root / "downloads")


def _here(context: Context) -> FileSource | None:
    source = context.config.collection
    return source if isinstance(source, FileSource) and "://" not in source.path else None


def files(context: Context) -> dict[str, Any] | None:
    """What is in a folder of photos: format → photos, and reason → suffix → files that are left out."""
    source = _here(context)
    if not isinstance(source, Folder):
        return None
    below = source.files(place_of(context))
    return {"photos": below.formats(), "left_out": below.counts()}


def column_notes(context: Context) -> list[str]:
    """What people should know of a table's ids, times and labels. Raises BadInput if they cannot be what they seem."""
    source = _here(context)
    return list(source.survey(place_of(context)).notes) if isinstance(source, TableSource) else []


def resets(table: pa.Table) -> dict[str, int]:
    """`reset_clocks` of the columns uploaded, taken and extra, by the camera's clock where it is known."""
    pairs = zip(table["taken"].to_pylist(), table["uploaded"].to_pylist(), strict=True)
    return reset_clocks((uploaded if taken is None else taken for taken, uploaded in pairs), table["extra"].to_pylist())


def near_borders(context: Context, table: pa.Table) -> int | None:
    """Photos of a folder whose clock, of unknown offset, shows a time within 14 hours of a bucket's border: only these
    may be in the wrong bucket. None: another source, or a table without the column extra."""
    if not isinstance(context.config.collection, Folder) or "extra" not in table.column_names:
        return None
    times = table["uploaded"].to_numpy().astype(np.int64)
    clock = np.array([_without_offset(extra or "") for extra in table["extra"].to_pylist()], bool)
    _, buckets = assign(times, whole(table["id"]), context.config.buckets)
    ends = {border for bucket in buckets for border in (bucket.start, bucket.end) if border is not None}
    borders = np.array(sorted(ends), np.int64)
    first = np.searchsorted(borders, times[clock] - ZONES, "left")
    return int((first < np.searchsorted(borders, times[clock] + ZONES, "right")).sum())


def _without_offset(extra: str) -> bool:
    """Whether a photo's record says the time of a clock, and not how far it is from UTC."""
    match = PRECISION.search(extra)
    return match is not None and match[1] in EXACT and '"date_offset"' not in extra
