"""What a plan says of the source's contents: its files, its columns, its dates, and its labels in each bucket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from driftline.curate.bucketing.assign import THIN, UNDECIDED, assign
from driftline.curate.bucketing.frozen import assign_frozen
from driftline.curate.bucketing.settings import BucketSettings
from driftline.curate.bucketing.settled import settled_dates, times_of
from driftline.curate.core.atomic_io import read_json
from driftline.curate.core.errors import Shortage
from driftline.curate.metadata.clocks import PRECISION, reset_clocks
from driftline.curate.metadata.schema import whole
from driftline.curate.retrieval.settings import RetrieveSettings
from driftline.curate.sources.base import FileSource, TableSource, Workplace
from driftline.curate.sources.folder import Folder
from driftline.pipelines.run.stage import MEMORY, Context
from driftline.pipelines.run.state import folder_of
from driftline.pipelines.stages.bucket import Bucket, settled_of

ZONES = 14 * 3600  # seconds that a clock may be from UTC
EXACT = ("minute", "second")  # precisions of a time that a clock showed


def place_of(context: Context) -> Workplace:
    """Where the source works."""
    return Workplace(context.root, context.root / "downloads", memory=context.root / MEMORY)


def _here(context: Context) -> FileSource | None:
    source = context.config.collection
    return source if isinstance(source, FileSource) and "://" not in source.path else None


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

    sizes: list[dict[str, Any]]
    """name and photos of each labelled bucket"""
    undecided: int | None = None
    """photos that may be in several; None: the stage bucket is done"""
    thin: int | None = None
    """photos that wait for others of their period; likewise"""
    near_borders: int | None = None
    """photos of a folder whose clock, of unknown offset, shows a time within 14 hours of a bucket's border: only these
    may be in the wrong bucket. None: another source, or the stage is done"""


def cut(context: Context, table: pa.Table, share: float, again: bool, borders: Mapping[str, Any] | None = None) -> Cut:
    """table: columns id, uploaded, until of N photos, and extra, if it is known. share: photos for each of these.
    again: by the settings, or the borders that the run keeps; else as the finished stage did. borders: instead of
    these. Raises Shortage if no photo is in a bucket."""
    settings, ids = context.config.buckets, whole(table["id"])
    settings = settings.model_copy(update={"min_photos": max(1, round(settings.min_photos / share))})  # of a sample
    if not again:
        return Cut(_sizes(settings, read_json(folder_of(context.root, "bucket") / "buckets.json"), 1.0))
    times = times_of(table, settled_dates(settled_of(context.root)))
    if borders is None and (kept := Bucket(context).borders()).is_file():
        borders = read_json(kept)
    if borders is None:
        number, buckets = assign(times.first, ids, settings, times.last)
    else:
        number, buckets = assign_frozen(times.first, ids, borders, settings, times.last)
    undecided, thin = (round(int((number == why).sum()) * share) for why in (UNDECIDED, THIN))
    if not (number >= 0).any():
        problem = f"None of {len(table):,} photos is in a bucket (date_undecided {undecided:,})."
        raise Shortage(problem, "", "Compare buckets with the dates of the photos.")
    near = None
    if isinstance(context.config.collection, Folder) and "extra" in table.column_names:
        clock = np.array([_without_offset(extra or "") for extra in table["extra"].to_pylist()], bool)
        ends = {border for bucket in buckets for border in (bucket.start, bucket.end) if border is not None}
        at_borders, clocks = np.array(sorted(ends), np.int64), times.first[clock]
        first = np.searchsorted(at_borders, clocks - ZONES, "left")
        near = int((first < np.searchsorted(at_borders, clocks + ZONES, "right")).sum())
    plain = [bucket.plain() for bucket in buckets]
    return Cut(_sizes(settings, plain, share), undecided, thin, near)


def _sizes(settings: BucketSettings, buckets: list[dict[str, Any]], share: float) -> list[dict[str, Any]]:
    """Name and photos of the labelled ones."""
    return [{"name": b["name"], "photos": round(b["count"] * share)} for b in settings.labelled(buckets)]


def all_taken(settings: RetrieveSettings, photos: int) -> bool:
    """Whether each photo of a bucket is a candidate of a concept, so that none is left for the background."""
    return (
        photos <= min(settings.per_class, settings.depth) and settings.overlap != "discard" and not settings.has_rules
    )


def without_licence(context: Context, table: pa.Table, problems: dict[str, None]) -> dict[str, int] | None:
    """How many photos of a sample may not be published as they are; None for none. All: that is a problem.

    table: with licence and licence_url.
    """
    settings = context.config.release
    pairs = zip(table["licence"].to_pylist(), table["licence_url"].to_pylist(), strict=True)
    refused = sum(not settings.permits(*pair) for pair in pairs)
    if refused and refused == len(table):
        problems[
            "No photo has a licence that permits copies, so nothing can be published. If they are your own photos, set "
            "release.own: true; release.licences names licences that permit them."
        ] = None
    return {"photos": refused, "of": len(table)} if refused and not settings.licences else None


def _without_offset(extra: str) -> bool:
    """Whether a photo's record says the time of a clock, and not how far it is from UTC."""
    match = PRECISION.search(extra)
    return match is not None and match[1] in EXACT and '"date_offset"' not in extra
