"""Settings of filter."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from driftline.curate.core.settings import Duration, Form, PathText, Positive, Section, Stages, Time

Prefix = Annotated[str, Field(min_length=1)]
BOX = Form("[west, south, east, north] in degrees, south < north, or null")


class FilterSettings(Section):
    """Which rows are dropped before anything is downloaded."""

    upload_after_capture: bool = True
    """CLEAR's rule: drop photos uploaded not strictly later than captured, and photos without a capture date"""
    date_tolerance: Duration = 0
    """by how much capture may seem later than upload, e.g. 14h: cameras show local time, uploads are UTC"""
    earliest: Time | None = None
    """earlier upload times are wrong (a date, or null)"""
    latest: Time | None = None
    """upload times from this one on are wrong (a date, or null: 14 hours after the run, as its latest zone has it)"""
    licences: tuple[Prefix, ...] = ()
    """allowed licences: how their name or address begins, any case, e.g. [Attribution License] (empty: all)"""
    box: Annotated[tuple[float, float, float, float] | None, BOX] = None
    """only photos taken in [west, south, east, north], degrees; west > east crosses the date line (null: everywhere)"""
    cameras: tuple[Prefix, ...] = ()
    """only cameras whose name contains one of these, any case, e.g. [Canon, NIKON] (empty: all)"""
    tags_any: tuple[str, ...] = ()
    """only photos with one of these tags, any case (empty: all)"""
    tags_none: tuple[str, ...] = ()
    """no photos with one of these tags, any case"""
    per_user: Positive | None = None
    """at most this many photos of one user, the first in metadata order (null: all)"""
    withdrawn: Annotated[PathText | None, Stages(("publish",))] = None  # its content enters filter's fingerprint
    """CSV file with a column id: photos that their owners withdrew (data_cards/withdrawn.csv)"""
    where: str | None = None
    """your own filter: one DuckDB expression over the table's columns; false and null drop a photo (null: none)"""

    @field_validator("box")
    @classmethod
    def _is_a_box(cls, box: tuple[float, float, float, float] | None) -> tuple[float, float, float, float] | None:
        if box is not None:
            west, south, east, north = box
            if not (-180 <= west <= 180 and -180 <= east <= 180 and -90 <= south < north <= 90):
                raise ValueError(f"Expected {BOX.text}")
        return box
