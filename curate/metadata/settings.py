"""Settings of filter."""

from typing import Annotated

from pydantic import Field

from driftline.curate.core.settings import Duration, PathText, Positive, Section, Stages, Time

Prefix = Annotated[str, Field(min_length=1)]


class FilterSettings(Section):
    """Which photos are dropped before anything is downloaded."""

    upload_after_capture: bool = True
    """CLEAR's rule: drop photos uploaded not strictly later than captured, and photos without a capture date"""
    date_tolerance: Duration = 0
    """by how much capture may seem later than upload, e.g. 14h: cameras show local time, uploads are UTC"""
    earliest: Time | None = None
    """earlier upload times are wrong (a date, or null)"""
    latest: Time | None = None
    """upload times from this one on are wrong (a date, or null: 14 hours after the run, as its latest zone has it)"""
    licences: tuple[Prefix, ...] = ()
    """allowed licences: how their name or URL begins, any case, e.g. [Attribution License] (empty: all)"""
    per_user: Positive | None = None
    """at most this many photos of one user, the first in metadata order (null: all)"""
    withdrawn: Annotated[PathText | None, Stages(("publish",))] = None  # its content enters filter's fingerprint
    """CSV file with a column id: photos that their owners withdrew (data_cards/withdrawn.csv)"""
    where: str | None = None
    """your own filter: one DuckDB expression over the table's columns; false and null drop a photo (null: none)"""
