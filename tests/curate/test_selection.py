"""What seeds decide: which images a release has, in which order, and who is tested. Bounds are five standard errors."""

from typing import Any

import numpy as np

from driftline.curate.core.group_split import count_groups, draw_sides, too_large
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


def test_images_of_the_version_before_are_selected_first() -> None:
    before = ("zebra03", "zebra19", "ant00", "ant07")
    assert all(set(before) <= set(chosen(seed, before)) for seed in range(20))


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
    assert large.startswith("20 of 40 images train in every split")
    assert large.endswith("too large to be tested: 1.")
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
