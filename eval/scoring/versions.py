"""Streams of several versions of one release: which scores on one may be compared with scores on the other.

A release says, for each bucket, what training and tests on it are, as hashes (`BUCKETS.json`). The score of a learner
that was trained up to step i, on step j, may be compared if steps 0 … i and j are the same; of a learner that uses
unlabelled samples, those of steps 0 … i must be the same, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from driftline.stream_builder.stream import Stream

Record = Mapping[str, Any]  # what `record` says


@dataclass(frozen=True)
class Shared:
    """What two versions have in common."""

    same: tuple[int, ...]
    """steps whose training and test data are the same"""
    learned: int
    """number of first steps that are the same"""
    pools: int
    """number of first steps of which the unlabelled samples are the same, too"""

    def cells(self, unlabelled: bool) -> list[tuple[int, int]]:
        """(trained up to, tested on) of the scores that may be compared. unlabelled: of a learner that uses such."""
        return [(i, j) for i in range(self.pools if unlabelled else self.learned) for j in self.same]


def record(stream: Stream) -> dict[str, Any] | None:
    """What a run's record says about the release of its stream; None for other streams."""
    facts = stream.facts
    if not isinstance(facts.get("buckets"), list) or len(facts["buckets"]) != len(stream.steps):
        return None
    return {"name": facts.get("release"), "version": facts.get("version"), "buckets": facts["buckets"]}


def shared(a: Record, b: Record) -> Shared:
    """What two versions have in common, step for step. A step is the same only as a whole, because some protocols train
    and test on all of it."""
    steps = list(zip(a["buckets"], b["buckets"], strict=False))
    alike = [all(one[key] == other[key] for key in ("train", "test")) for one, other in steps]
    same = tuple(i for i, is_same in enumerate(alike) if is_same)
    learned = [*alike, False].index(False)
    pools = [one.get("unlabelled") == other.get("unlabelled") for one, other in steps[:learned]]
    return Shared(same, learned, [*pools, False].index(False))
