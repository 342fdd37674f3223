"""What seeds decide: which images a release has, in which order, and who is tested. Bounds are five standard errors."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np

from driftline.curate.core.group_split import count_groups, describe_splits, draw_sides, too_large
from driftline.curate.core.seeding import rng_for
from driftline.curate.release.selection import all_splits, gaps_of, select, split_groups, split_sides
from driftline.curate.release.settings import ReleaseSettings

CLASSES = ["zebra", "ant"]
Row = dict[str, Any]


def rows(n: int = 20, sizes: tuple[int, ...] = (1,)) -> list[Row]:
    """n images of each class in one bucket; uploaders have as many images as `sizes` says, in turns."""
    users = np.repeat(np.arange(2 * n), np.resize(sizes, 2 * n))
    return [
        {"id": f"{name}{i:02}", "bucket": 1, "concept": name, "user": f"u{users[k * n + i]}"}
        for k, name in enumerate(CLASSES)
        for i in range(n)
    ]


def chosen(seed: int, first: tuple[str, ...] = ()) -> list[str]:
    return [r["id"] for r in select(rows(), [1], CLASSES, ReleaseSettings(per_class=10), seed, first)]


def test_every_image_is_as_likely_to_be_selected() -> None:
    often = Counter(id_ for seed in range(100) for id_ in chosen(seed))
    assert len(often) == 40
    assert all(25 <= n <= 75 for n in often.values())


def test_images_of_a_bucket_are_not_in_order_of_classes() -> None:
    for seed in range(20):
        assert sum(a[0] != b[0] for a, b in pairwise(chosen(seed))) >= 3


def test_images_of_the_version_before_are_selected_first() -> None:
    before = ("zebra03", "zebra19", "ant00", "ant07")
    assert all(set(before) <= set(chosen(seed, before)) for seed in range(20))


def test_other_seeds_and_other_numbers_of_a_split_test_other_uploaders() -> None:
    some = rows(40, (1, 2, 3, 5))
    groups = split_groups(some)
    by_seed = [tuple(split_sides(some, groups, 0.3, seed, 0)) for seed in range(20)]
    assert len(set(by_seed)) == len({tuple(split_sides(some, groups, 0.3, 0, k)) for k in range(20)}) == 20
    often = Counter(g for sides in by_seed for g in {g for g, s in zip(groups, sides, strict=True) if s == "test"})
    assert set(often) == set(groups)
    assert max(often.values()) < 17


def test_near_copies_of_several_uploaders_are_on_one_side() -> None:
    some = rows(40)
    copies = np.arange(80) // 2 * 2
    groups = split_groups(some, copies)
    assert len(set(groups)) == 40
    for seed in range(5):
        sides = split_sides(some, groups, 0.3, seed, 0)
        assert sides[::2] == sides[1::2]


def test_a_group_is_named_by_its_smallest_id() -> None:
    assert set(split_groups(rows(6, (3,)))) == {"zebra00", "zebra03", "ant00", "ant03"}


def test_groups_keep_the_side_that_is_known() -> None:
    some = rows(40, (1, 2, 3))
    groups = split_groups(some)
    known = {g: "test" if k % 3 == 0 else "train" for k, g in enumerate(sorted(set(groups))[::2])}
    for seed in range(5):
        sides = dict(zip(groups, split_sides(some, groups, 0.3, seed, 0, known), strict=True))
        assert all(sides[g] == side for g, side in known.items())


def test_a_class_without_tests_equal_splits_and_large_groups_are_said() -> None:
    some = [{**r, "user": "all zebras" if r["concept"] == "zebra" else None} for r in rows()]
    groups = split_groups(some)
    splits = all_splits(some, groups, ReleaseSettings(splits=2), 0)
    large, untested = gaps_of(some, groups, splits, 0.3)
    assert large.startswith("1 groups (an uploader, near copies) with 20 of 40 images")
    assert untested == "The class 'zebra' has no test image in split_0, split_1."
    same = gaps_of(some, groups, {"a": splits["split_0"], "b": splits["split_0"]}, 0.3)
    assert same[-1] == "These splits are the same draw: a and b."


def test_half_an_image_is_tested_every_other_time() -> None:
    cell = np.zeros(10, np.int64)
    tested = [int(draw_sides((cell,), np.arange(10), 0.25, rng_for(seed)).sum()) for seed in range(400)]
    assert set(tested) == {2, 3}
    assert abs(np.mean(tested) - 2.5) < 5 * 0.5 / 20


def test_groups_of_rare_sizes_are_tested_about_as_often_as_others() -> None:
    group = np.repeat(np.arange(43), [11, 5, 2, *[1] * 40])
    sides = [draw_sides((np.zeros(58),), group, 0.3, rng_for(seed)) for seed in range(100)]
    often = np.sum(sides, axis=0)
    assert all(10 <= often[np.searchsorted(group, g)] <= 55 for g in range(3))


def test_a_group_is_too_large_from_one_image_more_than_the_tests_on() -> None:
    for size, large in ((30, False), (31, True)):
        group = np.repeat(np.arange(101 - size), [size, *[1] * (100 - size)])
        assert too_large(count_groups((np.zeros(100),), group), 0.3)[0] == large


def test_each_bucket_and_class_has_its_share_of_tests() -> None:
    rng = rng_for(0, "strata")
    strata, group = (rng.integers(0, 4, 800), rng.integers(0, 5, 800)), np.arange(800) // 2
    side = draw_sides(strata, group, 0.3, rng_for(1))
    for stratum in strata:
        for value in np.unique(stratum):
            assert abs(side[stratum == value].sum() - 0.3 * (stratum == value).sum()) <= 3


def test_independent_splits_share_what_chance_gives() -> None:
    """Of samples that are tested with .3, the other split tests .3."""
    zeros, sides = np.zeros(2000), [draw_sides((np.zeros(2000),), np.arange(2000), 0.3, rng_for(k)) for k in (0, 1)]
    (pair,) = describe_splits({"bucket": zeros}, np.arange(2000), dict(zip("ab", sides, strict=True)), 0.3)["overlap"]
    assert abs(pair["shared"] - 0.3) < 0.08


def test_the_share_of_a_split_counts_images_and_not_groups() -> None:
    group = np.array([0, 0, 0, 0, 1, 2, 3, 4])
    side = group == 0
    facts = describe_splits({"bucket": np.zeros(8)}, group, {"s": side}, 0.5)
    assert facts["splits"]["s"]["share"] == 0.5
