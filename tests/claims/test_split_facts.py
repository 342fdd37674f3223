"""What is published about splits is right, and draws depend on no name: twins without the code of `group_split`."""

from collections import Counter, defaultdict
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest
from support.worlds import across_seeds

from driftline.curate.core.group_split import describe_splits, draw_sides
from driftline.curate.core.seeding import rng_for

N, SHARE = 900, 0.3
Array = npt.NDArray[np.int64]


def photos(seed: int) -> tuple[Array, Array, Array]:
    """(N,) bucket, class and group: Zipf-sized uploaders, each with a favourite class; uploader 0 has 400 photos."""
    rng = rng_for(seed, "photos")
    sizes = np.concatenate([[400], np.minimum(rng.zipf(2.0, N), 60)])
    group = np.repeat(np.arange(len(sizes)), sizes)[:N]
    favourite = rng.integers(0, 5, N)
    return rng.integers(0, 4, N), np.where(rng.random(N) < 0.5, favourite[group], rng.integers(0, 5, N)), group


@pytest.mark.parametrize("seed", range(5))
def test_facts_of_splits_are_those_of_a_count_by_hand(seed: int) -> None:
    bucket, label, group = (values.tolist() for values in photos(seed))
    sides = {f"split_{k}": draw_sides(photos(seed)[:2], np.array(group), SHARE, rng_for(seed, k)) for k in range(3)}
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
    bucket, label, group = photos(1)
    number = draw_sides((bucket, label), group, SHARE, rng_for(0))
    name = draw_sides((bucket.astype(np.str_), label.astype(np.str_)), group, SHARE, rng_for(0))
    assert (number == name).all()
