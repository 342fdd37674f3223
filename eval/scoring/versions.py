"""Streams of several versions of one release: which scores on one may be compared with scores on the other.

A release says, for each bucket, what training and tests on it are, as hashes (`BUCKETS.json`). The score of a learner
that was trained up to step i, on step j, may be compared if steps 0 … i and j are the same; of a learner that uses
unlabelled samples, those of steps 0 … i must be the same, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from driftline.stream_builder.stream import Stream

KEYS = ("name", "train", "test")


@dataclass(frozen=True)
class Version:
    """A version of a release, as a run's record names it."""

    name: str
    """of the release"""
    version: str
    steps: tuple[tuple[str, str, str, str], ...]
    """name, hash of training, of tests and of unlabelled samples ("": none) of each step"""

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


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


def version_of(facts: Any) -> Version | None:
    """A record's entry `release`; None if it is missing or damaged."""
    if not isinstance(facts, Mapping) or not all(isinstance(facts.get(key), str) for key in ("name", "version")):
        return None
    steps = facts.get("buckets")
    if not isinstance(steps, list) or not all(
        isinstance(step, Mapping) and all(isinstance(step.get(key, ""), str) for key in (*KEYS, "unlabelled"))
        and step.keys() >= set(KEYS)
        for step in steps
    ):  # fmt: skip
        return None
    entries = ((s["name"], s["train"], s["test"], s.get("unlabelled", "")) for s in steps)
    return Version(facts["name"], facts["version"], tuple(entries))


def shared(a: Version, b: Version) -> Shared:
    """What two versions have in common, step for step. A step is the same only as a whole, because some protocols train
    and test on all of it."""
    common = min(len(a.steps), len(b.steps))
    same = tuple(i for i in range(common) if a.steps[i][1:3] == b.steps[i][1:3])
    learned = next((i for i in range(common) if i not in same), common)
    pools = next((i for i in range(learned) if a.steps[i][3] != b.steps[i][3]), learned)
    return Shared(same, learned, pools)
