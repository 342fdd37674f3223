"""Composition: which accepted images a release holds, and on which side of each split they are."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from curate.core.seeding import name_for
from curate.images.near_duplicates import group_pairs
from curate.release.settings import ReleaseSettings
from curate.retrieval.candidates import check_enough

Row = Mapping[str, Any]


def select(
    accepted: Sequence[Row],
    buckets: Sequence[int],
    classes: Sequence[str],
    settings: ReleaseSettings,
    seed: int,
) -> list[Row]:
    """accepted: dicts with id, bucket, concept → a random `per_class` of each bucket and class, in release order.

    Every image has a seeded rank of its own, so that one image more or less changes no other's place: releases that
    follow each other hold the same images as far as they can. Raises Shortage with a table of what lacks; a (bucket,
    class) with nothing always fails.
    """
    cells: dict[tuple[int, str], list[Row]] = defaultdict(list)
    for row in accepted:
        cells[row["bucket"], row["concept"]].append(row)
    wanted = {c: settings.wanted(c) for c in classes}
    counts = {(str(b), c): len(cells[b, c]) for b in buckets for c in classes}
    floor = wanted if settings.short == "fail" else dict.fromkeys(classes, 1)
    way_out = (
        "Lower release.per_class, raise retrieve.per_class so that more images are asked, drop the class, or set "
        "release.short: reopen (asks about further candidates) or fewer."
    )
    check_enough(counts, floor, "Too few accepted images for the release", way_out)
    chosen: list[Row] = []
    for b in buckets:
        of_bucket: list[Row] = []
        for c in classes:
            ranked = sorted(cells[b, c], key=lambda row: name_for(seed, "publish", row["id"]))
            of_bucket.extend(ranked[: wanted[c]])
        chosen.extend(sorted(of_bucket, key=lambda row: name_for(seed, "shard order", row["id"])))
    return chosen


def together(rows: Sequence[Row], copies: npt.NDArray[np.int64] | None = None) -> list[str]:
    """The group of each row that no split may part: photos of one user, and near copies, through any chain of both.

    rows: dicts with id, user. copies: (N,) group of near copies of each. A group is named by its first id.
    """
    first: dict[tuple[str, Any], int] = {}
    links = [(first.setdefault(("user", row["user"]), i), i) for i, row in enumerate(rows) if row.get("user")]
    if copies is not None:
        links += [(first.setdefault(("copy", g), i), i) for i, g in enumerate(copies.tolist())]
    pairs = np.array(links, np.int64).reshape(-1, 2)
    ids = [str(row["id"]) for row in rows]
    smallest: dict[int, str] = {}
    found = group_pairs(pairs, len(rows)).tolist()
    for id_, g in zip(ids, found, strict=True):
        smallest[g] = min(id_, smallest.get(g, id_))
    return [smallest[g] for g in found]


def split(rows: Sequence[Row], group: Sequence[str], share: float, seed: int, number: int) -> list[str]:
    """rows: dicts with bucket, concept. group: of each row, as from `together` → "train" or "test" for each.

    Every (bucket, class) has round(share × n) test images where groups allow it: groups go to the test side, large ones
    first in seeded order, while no cell overflows.
    """
    members: dict[str, list[int]] = defaultdict(list)
    for i, name in enumerate(group):
        members[name].append(i)
    cells = [(row["bucket"], row["concept"]) for row in rows]
    room = {cell: round(share * n) for cell, n in Counter(cells).items()}
    order = sorted(members, key=lambda name: (-len(members[name]), name_for(seed, "split", number, name)))
    sides = ["train"] * len(rows)
    for name in order:
        need = Counter(cells[i] for i in members[name])
        if all(room[cell] >= n for cell, n in need.items()):
            for cell, n in need.items():
                room[cell] -= n
            for i in members[name]:
                sides[i] = "test"
    return sides


def splits_of(
    rows: Sequence[Row], copies: npt.NDArray[np.int64] | None, settings: ReleaseSettings, seed: int
) -> dict[str, list[str]]:
    """Every split's sides, by name."""
    group = together(rows, copies)
    return {f"split_{k}": split(rows, group, settings.test_share, seed, k) for k in range(settings.splits)}
