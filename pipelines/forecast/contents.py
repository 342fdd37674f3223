"""What a plan says of the source's contents: its files, its columns, and its dates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from driftline.curate.bucketing.assign import UNDECIDED, Bucket, assign
from driftline.curate.bucketing.settled import settled_dates, times_of
from driftline.curate.metadata.clocks import PRECISION, reset_clocks
from driftline.curate.metadata.schema import whole
from driftline.curate.sources.base import FileSource, TableSource, Workplace
from driftline.curate.sources.folder import Folder
from driftline.pipelines.run.stage import Context
from driftline.pipelines.stages.bucket import settled_of

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


@dataclass(frozen=True)
class Cut:
    """The photos of a sample in buckets."""

    buckets: list[Bucket]
    """with the photos of the sample"""
    undecided: int
    """photos that may be in several"""
    near_borders: int | None
    """photos of a folder whose clock, of unknown offset, shows a time within 14 hours of a bucket's border: only these
    may be in the wrong bucket. None: another source"""


def cut(context: Context, table: pa.Table) -> Cut:
    """table: columns id, uploaded, until of N photos, and extra, if it is known."""
    times = times_of(table, settled_dates(settled_of(context.root)))
    number, buckets = assign(times.first, whole(table["id"]), context.config.buckets, times.last)
    near = None
    if isinstance(context.config.collection, Folder) and "extra" in table.column_names:
        clock = np.array([_without_offset(extra or "") for extra in table["extra"].to_pylist()], bool)
        ends = {border for bucket in buckets for border in (bucket.start, bucket.end) if border is not None}
        borders, clocks = np.array(sorted(ends), np.int64), times.first[clock]
        first = np.searchsorted(borders, clocks - ZONES, "left")
        near = int((first < np.searchsorted(borders, clocks + ZONES, "right")).sum())
    return Cut(buckets, int((number == UNDECIDED).sum()), near)


def _without_offset(extra: str) -> bool:
    """Whether a photo's record says the time of a clock, and not how far it is from UTC."""
    match = PRECISION.search(extra)
    return match is not None and match[1] in EXACT and '"date_offset"' not in extra
