"""Photos to learn from: no test image of any split, no photo by its uploader, no near copy of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from driftline.curate.core.outside.tables import read_parquet
from driftline.curate.core.parsing import rows_of
from driftline.curate.images.near_duplicates import SURE_BITS, Hashes
from driftline.curate.release.format import Release

TEST, UPLOADER, COPY = "test_image", "uploader_of_tests", "near_copy_of_tests"  # why a photo is left out


@dataclass(frozen=True)
class Tested:
    """The images that at least one split of a release tests."""

    ids: frozenset[str]
    """of the images"""
    users: frozenset[str]
    """uploaders of them"""
    digests: frozenset[str]
    """SHA-256 of their files, as published and as fetched"""
    bits: int = SURE_BITS
    """near copies of them differ in at most so many bits of 64"""

    @classmethod
    def of(
        cls, rows: Sequence[Mapping[str, Any]], splits: Mapping[str, Sequence[str]], bits: int = SURE_BITS
    ) -> Tested:
        """rows: N dicts with id, user, sha256, source_sha256. splits: name → (N,) "train" or "test"."""
        tested = [row for i, row in enumerate(rows) if any(sides[i] == "test" for sides in splits.values())]
        return cls(
            frozenset(row["id"] for row in tested),
            frozenset(row["user"] for row in tested if row.get("user")),
            frozenset(row[name] for row in tested for name in ("sha256", "source_sha256") if row.get(name)),
            min(bits, SURE_BITS),
        )

    @classmethod
    def of_release(cls, release: Release) -> Tested:
        """Of all splits of a release."""
        columns = ("id", "user", "sha256", "source_sha256")
        rows = [dict(zip(columns, values, strict=True)) for values in rows_of(release.table, *columns)]
        rule = release.facts["provenance"].get("near_copies") or {}
        splits = {name: release.table[name].to_pylist() for name in release.facts["splits"]}
        return cls.of(rows, splits, rule.get("copy_bits", SURE_BITS))

    def why(self, id_: str, user: str | None, sha256: str | None) -> str | None:
        """Why a photo may not be learned from, by what is known without its pixels; None if it may."""
        if id_ in self.ids:
            return TEST
        if user in self.users:
            return UPLOADER
        return COPY if sha256 in self.digests else None


def is_near(hashed: np.uint64, tests: Hashes, bits: int) -> bool:
    """Whether an image's hash differs from one of those of the tests (T,) in at most `bits` bits."""
    return bool(len(tests)) and int(np.bitwise_count(tests ^ hashed).min()) <= bits


def left_out(tests: Tested, rows: Iterable[Sequence[Any]]) -> dict[str, str]:
    """Id → why it may not be learned from. rows: (id, user, sha256)."""
    reasons = ((id_, tests.why(id_, user, sha256)) for id_, user, sha256 in rows)
    return {id_: reason for id_, reason in reasons if reason is not None}


def left_out_of_unlabelled(release: Release) -> dict[str, str]:
    """Id → why, of the unlabelled images of a release that was not published by this rule, as one edited by hand."""
    path = release.path / "unlabelled.parquet"
    if not path.is_file():
        return {}
    table = read_parquet(path)
    return left_out(Tested.of_release(release), rows_of(table, "id", "user", "source_sha256"))
