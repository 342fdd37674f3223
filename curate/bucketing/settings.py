"""Settings of bucket."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from driftline.curate.core.errors import BadConfig
from driftline.curate.core.settings import Positive, Section, Stages, Time


class BucketSettings(Section):
    """How the collection is cut in time."""

    kind: Literal["equal", "calendar", "cuts", "spans", "clear"] = "equal"
    """equal counts | calendar | given cuts | given spans | clear (the spans that CLEAR published)"""
    count: Annotated[int, Field(ge=2)] = 11
    """equal: number of buckets"""
    unit: Literal["day", "month", "year", "decade"] = "year"
    """calendar: length of a bucket"""
    min_photos: Positive = 1
    """calendar: periods with fewer photos are joined with those that follow, until together they have as many"""
    cuts: tuple[Time, ...] = ()
    """cuts: times that divide the collection, e.g. [2008-01-01, 2011-01-01]"""
    spans: tuple[tuple[Time, Time], ...] = ()
    """spans: [start, end) pairs; photos between spans are dropped"""
    ties: Literal["split", "together"] = "split"
    """equal: split photos of one second by a hash of their ids, or keep them together: counts then differ a little"""
    grow: Annotated[Literal["new", "extend-last"], Stages()] = "new"
    """driftline grow, photos later than all buckets: new buckets (equal: one a time, calendar: one a period), or the
    last bucket gets longer; earlier buckets keep their borders"""
    unlabelled: Annotated[tuple[int, ...], Stages(("publish",))] = (0,)
    """buckets without labels, kept for pre-training (CLEAR: the first)"""

    @model_validator(mode="after")
    def _is_complete(self) -> "BucketSettings":
        if self.kind in ("cuts", "spans") and not getattr(self, self.kind):
            raise ValueError(f"kind is {self.kind!r} and {self.kind} is empty. Expected at least one")
        return self

    @field_validator("cuts")
    @classmethod
    def _rise(cls, cuts: tuple[int, ...]) -> tuple[int, ...]:
        if list(cuts) != sorted(set(cuts)):
            raise ValueError("Expected times in rising order, without repetitions")
        return cuts

    @field_validator("spans")
    @classmethod
    def _do_not_overlap(cls, spans: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
        if any(start >= end for start, end in spans) or any(a[1] > b[0] for a, b in pairwise(spans)):
            raise ValueError("Expected [start, end) pairs in rising order that do not overlap")
        return spans

    @property
    def joins(self) -> bool:
        """Whether thin periods are joined."""
        return self.kind == "calendar" and self.min_photos > 1

    def fixed_count(self) -> int | None:
        """Number of buckets; None if it depends on the photos."""
        if self.kind == "equal" and self.ties == "split":
            return self.count
        return {"cuts": len(self.cuts) + 1, "spans": len(self.spans), "clear": 11}.get(self.kind)

    def labelled(self, buckets: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Those of `buckets.json` that get labels. Raises BadConfig if `unlabelled` names one that does not exist."""
        numbers = {bucket["index"] for bucket in buckets}
        if unknown := sorted(set(self.unlabelled) - numbers):
            raise BadConfig(f"buckets.unlabelled names {unknown}.", f"The buckets are {sorted(numbers)}.")
        return [bucket for bucket in buckets if bucket["index"] not in self.unlabelled]
