"""Which accepted images a release contains, and on which side of each split they are; what it keeps of the release
before it.
"""

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from driftline.curate.core.group_split import describe_splits, draw_sides
from driftline.curate.core.seeding import name_for, rng_for
from driftline.curate.images.near_duplicates import group_pairs
from driftline.curate.release.format import Release
from driftline.curate.release.settings import ReleaseSettings
from driftline.curate.retrieval.candidates import check_enough

Row = Mapping[str, Any]
WAY_OUT = (
    "Lower release.per_class, raise retrieve.per_class so that more images are asked, drop the class, or set "
    "release.short: reopen (asks about further candidates) or fewer."
)


def select(
    accepted: Sequence[Row],
    buckets: Sequence[int],
    classes: Sequence[str],
    settings: ReleaseSettings,
    seed: int,
    first: Container[str] = (),
    empty: Mapping[tuple[int, str], int] = MappingProxyType({}),
) -> list[Row]:
    """A random choice of `per_class` images for each bucket and class, in release order.

    accepted: dicts with id, bucket, concept. The seeded rank of an image depends only on its id, so that successive
    releases have most images in common. first: ids that are chosen before all others. empty:
    bucket and class → places of withdrawn images, which stay empty. Where `short` is "fail", raises
    Shortage with a table; otherwise a class has what there is in each bucket, also none.
    """
    cells: dict[tuple[int, str], list[Row]] = defaultdict(list)
    for row in accepted:
        cells[row["bucket"], row["concept"]].append(row)
    wanted = {c: settings.wanted(c) for c in classes}
    if settings.short == "fail":
        counts = {(str(b), c): len(cells[b, c]) + empty.get((b, c), 0) for b in buckets for c in classes}
        check_enough(counts, wanted, "Too few accepted images for the release", WAY_OUT)
    chosen: list[Row] = []
    for b in buckets:
        in_bucket: list[Row] = []
        for c in classes:
            ranked = sorted(cells[b, c], key=lambda row: (row["id"] not in first, name_for(seed, "publish", row["id"])))
            in_bucket.extend(ranked[: max(0, wanted[c] - empty.get((b, c), 0))])
        chosen.extend(sorted(in_bucket, key=lambda row: name_for(seed, "shard order", row["id"])))
    return chosen


def absences(counts: Mapping[tuple[str, str], int], buckets: Sequence[str], classes: Sequence[str]) -> list[str]:
    """A sentence for each class that is not in every bucket, and one for the buckets without images.

    counts: (bucket, class) → images.

    >>> absences({("2009", "bus"): 3, ("2010", "car"): 1, ("2011", "car"): 2}, ["2009", "2010", "2011"], ["bus", "car"])
    ['bus: in 2009 only.', 'car: none in 2009.']
    """
    there = [b for b in buckets if any(counts.get((b, c)) for c in classes)]
    sentences = []
    for c in classes:
        having = [b for b in there if counts.get((b, c))]
        if not having:
            sentences.append(f"{c}: no image.")
        elif len(having) < len(there):
            lacking = [b for b in there if b not in having]
            sentences.append(f"{c}: in {having[0]} only." if len(having) == 1 else f"{c}: none in {few(lacking)}.")
    gaps = [b for b in buckets if b not in there]
    return sentences + ([f"No image in {few(gaps)}."] if gaps else [])


def few(names: Sequence[str], most: int = 6) -> str:
    """The first names of a list.

    >>> few(["2009", "2010", "2011"], 2)
    '2009, 2010 and 1 more'
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def split_groups(rows: Sequence[Row], copies: npt.NDArray[np.int64] | None = None) -> list[str]:
    """The group of each row that must be on one side of a split: linked by uploader or as near-duplicates, also
    indirectly.

    rows: N dicts with id, user. copies: (N,) groups of near-duplicates. A group is named by its smallest id.
    """
    first: dict[tuple[str, Any], int] = {}
    links = [(first.setdefault(("user", row["user"]), i), i) for i, row in enumerate(rows) if row.get("user")]
    if copies is not None:
        links += [(first.setdefault(("copy", g), i), i) for i, g in enumerate(copies.tolist())]
    pairs = np.array(links, np.int64).reshape(-1, 2)
    ids = [str(row["id"]) for row in rows]
    smallest: dict[int, str] = {}
    groups = group_pairs(pairs, len(rows)).tolist()
    for id_, g in zip(ids, groups, strict=True):
        smallest[g] = min(id_, smallest.get(g, id_))
    return [smallest[g] for g in groups]


def split_sides(
    rows: Sequence[Row],
    group: Sequence[str],
    share: float,
    seed: int,
    number: int,
    former: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """ "train" or "test" for each of `rows` (dicts with bucket, concept) in split `number`; see `draw_sides`.

    group: from `split_groups`. former: group → its side, which it keeps.
    """
    strata = [np.array([row[column] for row in rows]) for column in ("bucket", "concept")]
    side = {"train": 0, "test": 1}
    fixed = np.array([side[former[g]] if g in former else -1 for g in group], np.int8)
    test = draw_sides(strata, np.array(group, np.str_), share, rng_for(seed, "split", number), fixed)
    return np.where(test, "test", "train").tolist()


def all_splits(
    rows: Sequence[Row],
    group: Sequence[str],
    settings: ReleaseSettings,
    seed: int,
    former: Callable[[str], Mapping[str, str]] | None = None,
) -> dict[str, list[str]]:
    """Name → sides of the rows, for every split; group: from `split_groups`. former: split → sides of groups that keep
    theirs."""
    names = [f"split_{k}" for k in range(settings.splits)]
    return {
        n: split_sides(rows, group, settings.test_share, seed, k, {} if former is None else former(n))
        for k, n in enumerate(names)
    }


def represented(
    rows: Sequence[Row], group: Sequence[str], splits: Mapping[str, Sequence[str]], share: float
) -> dict[str, Any]:
    """`describe_splits` of a release's rows (dicts with bucket, concept)."""
    strata = {"bucket": np.array([r["bucket"] for r in rows]), "class": np.array([r["concept"] for r in rows])}
    sides = {name: np.array(side) == "test" for name, side in splits.items()}
    return describe_splits(strata, np.array(group, np.str_), sides, share)


def gaps_of(rows: Sequence[Row], group: Sequence[str], splits: Mapping[str, Sequence[str]], share: float) -> list[str]:
    """A sentence for each gap that users of the release must know before they use it."""
    facts = represented(rows, group, splits, share)
    gaps = []
    if (large := facts["too_large"])["groups"]:
        gaps.append(
            f"{large['samples']:,} of {len(rows):,} images train in every split; groups (an uploader, near-duplicates) "
            f"that are too large to be tested: {large['groups']:,}."
        )
    untested: dict[str, list[str]] = defaultdict(list)
    for name, split in facts["splits"].items():
        for label in split["untested"]["class"]:
            untested[label].append(name)
    gaps += [f"The class {label!r} has no test image in {', '.join(names)}." for label, names in untested.items()]
    same = [" and ".join(pair["splits"]) for pair in facts["overlap"] if pair["shared"] == 1]
    return gaps + ([f"These splits are the same draw: {', '.join(same)}."] if same else [])


@dataclass(frozen=True)
class Former:
    """The release before, and what the run has kept of earlier ones: labels, groups of images and their sides.

    New images of a linked uploader, or near-duplicates, take the side of the images that are there.
    """

    names: Sequence[str]
    """its classes in the order of their labels"""
    rows: Mapping[str, Row]
    """id → its row of metadata.parquet"""

    @classmethod
    def of(
        cls, release: Release | None, kept: pa.Table | None = None, own: Mapping[str, str] = MappingProxyType({})
    ) -> Self:
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

        rows: with id and user. copies: id → group of near-duplicates. New images are taken in the order of their ids.
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
