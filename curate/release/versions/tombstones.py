"""Tombstones: images that are in a tar of a release, but no longer part of the release.

A release that appends keeps the tars of the version before byte for byte. TOMBSTONES.csv lists the images in them that
were withdrawn, removed, or written again into a later tar because their label, bucket, licence or content changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

from driftline.curate.core.atomic_io import csv_text
from driftline.curate.core.outside.names import inside
from driftline.curate.core.outside.tables import csv_rows

FILE = "TOMBSTONES.csv"
WITHDRAWN = "withdrawn"


@dataclass(frozen=True, order=True)
class Tombstone:
    """An image that readers of a tar must skip."""

    tar: str
    """path in the release, such as shards/bucket_01-00000.tar"""
    id: str
    """of the image; its members in the tar are ID.jpg, ID.cls, ID.json"""
    since: str
    """first version without it"""
    reason: str
    """why"""


COLUMNS = tuple(f.name for f in fields(Tombstone))


def read_tombstones(release: Path) -> list[Tombstone]:
    """The tombstones of a release folder; none if it has no file of them. Raises BadInput for a file that is none."""
    path = release / FILE
    if not path.is_file():
        return []
    stones = []
    for _, row in csv_rows(path, COLUMNS, "Expected the tombstones of a release.", "Copy the release again."):
        inside(release, row["tar"], path)
        stones.append(Tombstone(*(row[name] for name in COLUMNS)))
    return stones


def tombstones_csv(entries: Iterable[Tombstone]) -> str:
    """The text of TOMBSTONES.csv."""
    return csv_text(COLUMNS, ([getattr(entry, name) for name in COLUMNS] for entry in sorted(entries)))


def id_of(member: str) -> str:
    """The image that a member of a tar belongs to: ids have no dot.

    >>> id_of("bus-17.json")
    'bus-17'
    """
    return member.partition(".")[0]
