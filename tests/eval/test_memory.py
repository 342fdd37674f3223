"""Bounded memories against literal twins and their own promises."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from driftline.curate.core.seeding import rng_for
from driftline.eval.memory.samplers import balanced, biased_reservoir, greedy_balanced


def algorithm_1(buckets: list[list[int]], k: int, alpha: float, dynamic: bool, rng: np.random.Generator) -> list[int]:
    """CLEAR's algorithm 1, line by line, sample by sample [supplement 4]."""
    buffer: list[int] = []
    seen = 0
    for bucket in buckets:
        temporary = []
        seen += len(bucket)
        a = alpha * seen / k if dynamic else alpha
        for s in bucket:
            if len(buffer) < k:
                buffer.append(s)
            elif rng.random() <= a * k / seen:
                temporary.append(s)
        rng.shuffle(buffer)
        buffer = buffer[len(temporary) :] + temporary
        buffer = buffer[-k:]
    return buffer


def ours(buckets: list[list[int]], k: int, alpha: float, dynamic: bool, rng: np.random.Generator) -> list[int]:
    buffer: np.ndarray = np.zeros(0, int)
    seen = 0
    for bucket in buckets:
        seen += len(bucket)
        a = alpha * seen / k if dynamic else alpha
        both = np.concatenate([buffer, np.array(bucket, int)])
        buffer = both[biased_reservoir(len(buffer), len(bucket), seen, k, a, rng)]
    return buffer.tolist()


def test_the_biased_reservoir_keeps_what_algorithm_1_keeps() -> None:
    """Share of samples of each bucket after five buckets, over many draws: equal within five standard errors."""
    buckets = [list(range(30 * t, 30 * (t + 1))) for t in range(5)]
    for alpha, dynamic in ((0.5, False), (1.0, False), (2.0, False), (0.25, True), (1.0, True)):
        shares = []
        for draw in (algorithm_1, ours):
            rng = rng_for(0, draw.__name__, str(alpha))
            counts: Counter[int] = Counter()
            for _ in range(600):
                counts.update(s // 30 for s in draw(buckets, 30, alpha, dynamic, rng))
            shares.append(np.array([counts[t] for t in range(5)]) / (600 * 30))
        error = 5 * np.sqrt(0.25 / (600 * 30)) * 2
        assert np.abs(shares[0] - shares[1]).max() < error, (alpha, dynamic, shares)


def test_plain_reservoir_is_uniform_over_the_past_and_dynamic_one_is_the_newest_bucket() -> None:
    buckets = [list(range(20 * t, 20 * (t + 1))) for t in range(4)]
    rng = rng_for(0, "uniform")
    counts = Counter(s // 20 for _ in range(800) for s in ours(buckets, 20, 1.0, False, rng))
    shares = np.array([counts[t] for t in range(4)]) / (800 * 20)
    assert np.abs(shares - 0.25).max() < 0.02
    assert sorted(ours(buckets, 20, 1.0, True, rng)) == buckets[3]


@given(st.lists(st.integers(1, 15), min_size=1, max_size=6), st.integers(1, 20), st.floats(0, 6), st.booleans())
def test_a_reservoir_never_overflows_and_never_repeats(sizes: list[int], k: int, alpha: float, dynamic: bool) -> None:
    ends = np.cumsum(sizes)
    buckets = [list(range(e - s, e)) for s, e in zip(sizes, ends.tolist(), strict=True)]
    kept = ours(buckets, k, alpha, dynamic, rng_for(0, k))
    assert len(kept) == min(k, sum(sizes))
    assert len(set(kept)) == len(kept)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=80), st.integers(5, 30))
def test_gdumbs_memory_is_full_and_as_balanced_as_the_stream_allows(labels: list[int], limit: int) -> None:
    y = np.array(labels)
    keep = greedy_balanced(y, np.zeros(0, int), limit, rng_for(0))
    kept, all_of = Counter(y[keep].tolist()), Counter(labels)
    assert len(keep) <= limit
    fair = limit / len(all_of)
    for label, n in all_of.items():
        assert kept[label] >= min(n, int(fair)), "no class is pushed below its fair share"


def test_shares_of_past_steps_stay_equal_and_are_subsets() -> None:
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    for t in range(5):
        x = np.arange(40)[:, None] + 100 * t
        before, kept = kept, balanced(kept, x, np.full(40, t), 42, rng_for(0, t))
        assert all(set(a.ravel()) <= set(old.ravel()) for (a, _), (old, _) in zip(kept, before, strict=False))
    assert [(len(a), len(b)) for a, b in kept] == [(9, 9), (9, 9), (8, 8), (8, 8), (8, 8)]
    for t, (a, b) in enumerate(kept):
        assert set(b.tolist()) == {t}
        assert ((a[:, 0] >= 100 * t) & (a[:, 0] < 100 * t + 40)).all()
