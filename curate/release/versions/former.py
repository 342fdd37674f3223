"""What a release keeps of the release before it: the labels of its classes, its images' groups and their sides.

New images of a linked uploader, or near copies, take the side of the images that are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from driftline.curate.release.format import Release

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Former:
    """The release before, and what the run has kept of earlier ones."""

    names: Sequence[str]
    """its classes in the order of their labels"""
    rows: Mapping[str, Row]
    """id → its row of metadata.parquet"""

    @classmethod
    def of(
        cls, release: Release | None, kept: pa.Table | None = None, own: Mapping[str, str] = MappingProxyType({})
    ) -> Former:
        """kept: rows of earlier releases. own: id in the release → id in the run, where it is another one."""
        tables = [table for table in (kept, None if release is None else release.table) if table is not None]
        rows = [row for table in tables for row in table.to_pylist()]
        rows = [row | {name: own.get(row[name], row[name]) for name in ("id", "group")} for row in rows]
        return cls([] if release is None else release.classes, {row["id"]: row for row in rows})

    def classes(self, wanted: Sequence[str]) -> list[str]:
        """Its classes that are still wanted, then the new ones."""
        former = [name for name in self.names if name in wanted]
        return former + [name for name in wanted if name not in former]

    def bridges(self, rows: Iterable[Row], copies: Mapping[str, str]) -> set[str]:
        """Ids of new images that link two groups of the former release, which may be on different sides.

        rows: with id and user. copies: id → group of near copies. New images are taken in the order of their ids.
        """
        parent: dict[tuple[str, str], tuple[str, str]] = {}
        groups: dict[tuple[str, str], set[str]] = {}
        linking = set()

        def root(key: tuple[str, str]) -> tuple[str, str]:
            while (up := parent.setdefault(key, key)) != key:
                key = up
            return key

        for row in sorted(rows, key=lambda row: (row["id"] not in self.rows, row["id"])):
            old = self.rows.get(row["id"])
            user = row.get("user") or (old and old["user"])  # a release may not say it
            roots = sorted({root(key) for key in (("copy", copies[row["id"]]), ("user", user or "")) if key[1]})
            met = set().union(*(groups.get(key, set()) for key in roots), [] if old is None else [old["group"]])
            if old is None and len(met) > 1:
                linking.add(row["id"])
                continue
            for key in roots:
                parent[key] = roots[0]
            groups[roots[0]] = met
        return linking

    def groups(self, rows: Sequence[Row], linked: Sequence[str]) -> list[str]:
        """The group of each row. linked: from `split_groups`. Former images keep theirs, and give it to new ones."""
        own = [self.rows[row["id"]]["group"] if row["id"] in self.rows else None for row in rows]
        former = {g: group for group, g in zip(own, linked, strict=True) if group is not None}
        return [group or former.get(g, g) for group, g in zip(own, linked, strict=True)]

    def sides(self, rows: Sequence[Row], split: str) -> dict[str, str]:
        """Group → its side in `split`, of the former images among `rows`; {} for a split that is new."""
        old = (self.rows[row["id"]] for row in rows if row["id"] in self.rows)
        return {row["group"]: row[split] for row in old if split in row}
