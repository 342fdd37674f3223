"""Splits that represent: share, sizes of groups and spread are those of independent draws.

Twenty collections, from photos of one uploader each to Zipf-sized uploaders and one who has half of all. All seeds were
chosen before the results were seen; bounds of means over draws are five standard errors or more.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import mannwhitneyu
from support.helpers import few_of
from support.worlds import across_seeds

from driftline.curate.core.errors import BadConfig
from driftline.curate.core.group_split import count_groups, describe_splits, draw_sides, too_large
from driftline.curate.core.seeding import rng_for

SHARE, SPLITS = 0.3, 15
N, BUCKETS, CLASSES = 1500, 6, 8
KINDS = ("single", "pairs", "uniform", "geometric", "zipf 2.5", "zipf 2", "zipf 1.7", "half", "albums", "bursts")
Numbers = npt.NDArray[np.int64]


def collection(kind: str, seed: int) -> tuple[Numbers, Numbers, Numbers]:
    """(N,) bucket, class and group. Uploaders have a favourite class and bucket; bursts are in one bucket."""
    rng = rng_for(seed, "collection", kind)
    if kind == "single":
        sizes = np.ones(N, np.int64)
    elif kind in ("pairs", "albums", "bursts"):
        sizes = np.full(N, {"pairs": 2, "albums": 12, "bursts": 6}[kind])
    elif kind == "uniform":
        sizes = rng.integers(1, 16, N)
    elif kind == "geometric":
        sizes = rng.geometric(0.2, N)
    elif kind == "half":
        sizes = np.concatenate([[N // 2], rng.geometric(0.4, N)])
    else:
        sizes = np.minimum(rng.zipf(float(kind.split()[1]), N), N // 12)
    group = np.repeat(np.arange(len(sizes)), sizes)[:N]
    favourite, home = rng.integers(0, CLASSES, N), rng.integers(0, BUCKETS, N)
    at_home = 1.0 if kind == "bursts" else 0.3
    label = np.where(rng.random(N) < 0.3, favourite[group], rng.integers(0, CLASSES, N))
    return np.where(rng.random(N) < at_home, home[group], rng.integers(0, BUCKETS, N)), label, group


COLLECTIONS = [(kind, seed) for kind in KINDS for seed in (0, 1)]


@cache
def drawn(kind: str, seed: int, splits: int = SPLITS) -> list[npt.NDArray[np.bool_]]:
    bucket, label, group = collection(kind, seed)
    return [draw_sides((bucket, label), group, SHARE, rng_for(seed, "split", k)) for k in range(splits)]


@pytest.mark.parametrize(
    ("kind", "seed"), few_of(COLLECTIONS, [("pairs", 0), ("geometric", 0), ("half", 0)], "statistics")
)
class TestEveryCollection:
    def test_the_share_is_within_two_percent_of_what_groups_allow(self, kind: str, seed: int) -> None:
        """Of the whole, each bucket and each class. Groups allow: share of all, at most .7 of what can move; and what
        the largest group that can move has there is no fault of the draw."""
        bucket, label, group = collection(kind, seed)
        counted = count_groups((bucket, label), group)
        free = ~too_large(counted, SHARE)
        movable = np.bincount(counted.cell[free[group]], minlength=counted.counts.shape[1])
        allowed = np.minimum(SHARE * np.bincount(counted.cell), 0.7 * movable)
        for side in drawn(kind, seed):
            for values in (np.zeros(N, np.int64), bucket, label):
                for value in np.unique(values):
                    rows = values == value
                    cells = np.unique(counted.cell[rows])
                    largest = np.bincount(group[rows & free[group]], minlength=1).max()
                    off = abs(side[rows].sum() - allowed[cells].sum())
                    assert off <= max(0.02 * rows.sum(), largest, 1.5)

    def test_no_group_is_on_both_sides_and_one_that_is_too_large_is_in_training(self, kind: str, seed: int) -> None:
        bucket, label, group = collection(kind, seed)
        large = too_large(count_groups((bucket, label), group), SHARE)
        for side in drawn(kind, seed):
            tested, trained = set(group[side].tolist()), set(group[~side].tolist())
            assert not tested & trained
            assert not tested & set(np.flatnonzero(large).tolist())


def test_the_order_of_rows_does_not_matter() -> None:
    bucket, label, group = collection("zipf 2", 0)
    order = rng_for(1, "order").permutation(N)
    again = draw_sides((bucket[order], label[order]), group[order], SHARE, rng_for(0, "split", 0))
    assert (again == drawn("zipf 2", 0)[0][order]).all()


def test_sizes_of_groups_do_not_differ_between_the_sides() -> None:
    """At most 5 % of the draws are rejected at 5 %, by collection; 20 draws of each."""
    for kind in ("uniform", "geometric", "zipf 2", "zipf 1.7", "half"):
        _, _, group = collection(kind, 3)
        first = np.unique(group, return_index=True)[1]
        size = np.bincount(group)
        free = ~too_large(count_groups(collection(kind, 3)[:2], group), SHARE)
        rejected = 0
        for side in drawn(kind, 3, 20):
            tested = side[first]
            rejected += mannwhitneyu(size[free & tested], size[free & ~tested]).pvalue < 0.05
        assert rejected <= 1, kind


def test_a_large_uploader_is_tested_as_often_as_a_small_one() -> None:
    """200 draws: the mean inclusion of each band of sizes is .3 within five standard errors of independent groups."""
    _, _, group = collection("uniform", 5)
    first, size = np.unique(group, return_index=True)[1], np.bincount(group)
    often = np.mean([side[first] for side in drawn("uniform", 5, 200)], axis=0)
    for low, high in ((1, 3), (4, 7), (8, 11), (12, 15)):
        of_band = (size >= low) & (size <= high)
        error = np.sqrt(SHARE * (1 - SHARE) / 200 / of_band.sum())
        assert abs(often[of_band].mean() - SHARE) < max(5 * error, 0.02), (low, high)
    assert often.min() > 0.1
    assert often.max() < 0.6


def test_the_spread_of_a_score_over_published_splits_is_that_of_independent_draws() -> None:
    """Nearest means on features with an effect of the uploader. The old rule gave .1 where .1 × 11 is right.

    40 splits of one seed, and 40 seeds with one split: the ratio of two variances of 40 draws is within 1/4 and 4 but
    once in 10⁵.
    """
    bucket, label, group = collection("geometric", 7)
    rng = rng_for(7, "features")
    x = rng.normal(size=(N, 12)) + rng.normal(size=(CLASSES, 12))[label] + 1.5 * rng.normal(size=(N, 12))[group]

    def score(side: npt.NDArray[np.bool_]) -> float:
        means = np.stack([x[~side & (label == c)].mean(0) for c in range(CLASSES)])
        nearest = ((x[side][:, None] - means) ** 2).sum(-1).argmin(1)
        return float((nearest == label[side]).mean())

    published = [score(draw_sides((bucket, label), group, SHARE, rng_for(7, "split", k))) for k in range(40)]
    seeded = [score(draw_sides((bucket, label), group, SHARE, rng_for(k, "seeded"))) for k in range(40)]
    assert 1 / 4 < np.var(published) / np.var(seeded) < 4
    assert np.std(published) > 0.005


def test_groups_that_have_a_side_keep_it_and_the_others_make_up_for_it() -> None:
    bucket, label, group = collection("geometric", 0)
    fixed = np.where(group % 2 == 0, (group % 6 == 0).astype(np.int8), np.int8(-1)).astype(np.int8)
    side = draw_sides((bucket, label), group, SHARE, rng_for(0), fixed)
    assert (side[fixed >= 0] == fixed[fixed >= 0].astype(bool)).all()
    assert abs(side.mean() - SHARE) < 0.02


class TestWhatCannotBeSplit:
    def of(self, groups: Sequence[int], labels: Sequence[int]) -> tuple[npt.NDArray[np.bool_], dict]:  # type: ignore[type-arg]
        group, label = np.array(groups), np.array(labels)
        bucket = np.zeros(len(group), np.int64)
        side = draw_sides((bucket, label), group, SHARE, rng_for(0))
        return side, describe_splits({"bucket": bucket, "class": label}, group, {"split_0": side}, SHARE)

    def test_one_group_of_everything_is_named(self) -> None:
        side, facts = self.of([0] * 20, [0, 1] * 10)
        assert not side.any()
        assert facts["too_large"] == {"groups": 1, "samples": 20, "largest": [{"group": "0", "samples": 20}]}
        assert facts["splits"]["split_0"]["untested"] == {"bucket": [0], "class": [0, 1]}

    def test_a_class_of_one_uploader_is_named(self) -> None:
        side, facts = self.of([0] * 6 + list(range(1, 41)), [7] * 6 + [1, 2] * 20)
        assert facts["splits"]["split_0"]["untested"]["class"] == [7]
        assert {"bucket": 0, "class": 7, "tests": 0, "samples": 6} in facts["splits"]["split_0"]["missed"]
        assert abs(side.sum() - 0.3 * 40) <= 1, "the other classes keep their share"

    def test_a_class_with_one_photo_keeps_it_in_training(self) -> None:
        for seed in range(30):
            side = draw_sides((np.zeros(41), np.array([1] * 40 + [2])), np.arange(41), SHARE, rng_for(seed))
            assert not side[40]

    def test_a_group_across_all_buckets_can_be_tested(self) -> None:
        bucket, group = np.arange(600) % 6, np.arange(600) // 12
        often = np.mean([draw_sides((bucket,), group, SHARE, rng_for(k)) for k in range(100)], axis=0)
        assert (often > 0.1).all()

    @pytest.mark.parametrize("share", [-0.1, 1.0, 1.5, float("nan")])
    def test_a_share_that_is_none_is_refused(self, share: float) -> None:
        with pytest.raises(BadConfig, match="Expected a number from 0 to below 1"):
            draw_sides((np.zeros(9),), np.arange(9), share, rng_for(0))

    def test_more_splits_than_draws_show_in_their_overlap(self) -> None:
        """Four photos have few draws; fifty splits repeat them."""
        sides = {f"split_{k}": draw_sides((np.zeros(4),), np.arange(4), SHARE, rng_for(k)) for k in range(50)}
        pairs = describe_splits({"bucket": np.zeros(4)}, np.arange(4), sides, SHARE)["overlap"]
        assert any(pair["shared"] == 1 for pair in pairs)

    def test_nothing_and_a_share_of_zero_test_nothing(self) -> None:
        assert not draw_sides((np.zeros(0),), np.zeros(0), SHARE, rng_for(0)).any()
        assert not draw_sides((np.zeros(9),), np.arange(9), 0, rng_for(0)).any()


# ---- what is published about splits is right, and draws depend on no name: twins without the code of `group_split`


@pytest.mark.parametrize("seed", range(5))
def test_facts_of_splits_are_those_of_a_count_by_hand(seed: int) -> None:
    bucket, label, group = (values.tolist() for values in collection("half", seed))
    sides = {
        f"split_{k}": draw_sides(collection("half", seed)[:2], np.array(group), SHARE, rng_for(seed, k))
        for k in range(3)
    }
    facts = describe_splits({"bucket": np.array(bucket), "class": np.array(label)}, np.array(group), sides, SHARE)
    size, samples = Counter(group), Counter(zip(bucket, label, strict=True))
    of_stratum: dict[tuple[str, int], Counter[int]] = defaultdict(Counter)
    in_cell: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    for b, y, g in zip(bucket, label, group, strict=True):
        of_stratum["bucket", b][g] += 1
        of_stratum["class", y][g] += 1
        of_stratum["all", 0][g] += 1
        in_cell[b, y][g] += 1
    large = set()
    for counts in of_stratum.values():
        n = sum(counts.values())
        limit = min(max(1, int(np.ceil(SHARE * n - 1e-9))), n - 1)
        large |= {g for g, members in counts.items() if members > limit}
    assert 0 in large
    assert facts["too_large"]["groups"] == len(large)
    assert facts["too_large"]["samples"] == sum(size[g] for g in large)
    for name, side in sides.items():
        tests = Counter(cell for cell, t in zip(zip(bucket, label, strict=True), side, strict=True) if t)
        missed = {
            cell: (tests[cell], n)
            for cell, n in samples.items()
            if abs(tests[cell] - SHARE * n)
            > 1e-9 + max(1, 0.02 * n, max((m for g, m in in_cell[cell].items() if g not in large), default=0))
        }
        split = facts["splits"][name]
        assert {(m["bucket"], m["class"]): (m["tests"], m["samples"]) for m in split["missed"]} == missed
        assert split["share"] == pytest.approx(sum(tests.values()) / N)
        assert split["cells"] == pytest.approx(
            [f(tests[cell] / n for cell, n in samples.items()) for f in (min, max)]  # type: ignore[operator]
        )
        tested = {g for g, t in zip(group, side, strict=True) if t}
        for which, groups in (("test", tested - large), ("train", set(size) - tested - large)):
            of_side = [size[g] for g in groups]
            assert split["group_sizes"][which] == {
                "groups": len(of_side), "mean": pytest.approx(np.mean(of_side)), "median": np.median(of_side),
            }  # fmt: skip
    rows = {name: set(np.flatnonzero(side).tolist()) for name, side in sides.items()}
    pairs = {tuple(sorted(pair["splits"])): pair["shared"] for pair in facts["overlap"]}
    assert pairs == {
        tuple(sorted((a, b))): pytest.approx(2 * len(rows[a] & rows[b]) / (len(rows[a]) + len(rows[b])))
        for a, b in combinations(rows, 2)
    }


def test_the_place_of_a_name_in_the_alphabet_does_not_matter() -> None:
    """All uploaders alike in size: inclusion does not depend on the name, and two draws share what chance says."""
    group = np.array([f"u{i:04d}" for i in np.repeat(np.arange(400), 3)])
    bucket = np.arange(len(group)) % 3

    def tested(seed: int) -> set[str]:
        return set(group[draw_sides((bucket,), group, SHARE, rng_for(seed, "alphabet"))].tolist())

    across_seeds(tested, sorted(set(group.tolist())))


def test_strata_may_be_names_or_numbers() -> None:
    bucket, label, group = collection("zipf 2", 1)
    number = draw_sides((bucket, label), group, SHARE, rng_for(0))
    name = draw_sides((bucket.astype(np.str_), label.astype(np.str_)), group, SHARE, rng_for(0))
    assert (number == name).all()
