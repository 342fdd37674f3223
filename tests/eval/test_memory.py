"""What stays in a memory, and what answers become of it: against literal twins, by hand, over many draws."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from driftline.curate.core.seeding import rng_for
from driftline.eval.learner import Task
from driftline.eval.learners.neighbours import Knn
from driftline.eval.learners.references import Majority
from driftline.eval.memory import samplers
from driftline.eval.memory.samplers import balanced, biased_reservoir, class_reservoirs, greedy_balanced


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


def past(labels: list[int], start: int) -> Any:
    """A stream of these labels, whose newest batch begins at `start`."""
    y = np.array(labels)
    return SimpleNamespace(seen=len(y), start=start, y=lambda places: y[places])


def test_a_class_keeps_its_highest_weights() -> None:
    labels, weight = np.array([0, 0, 0, 1, 1, 1]), np.array([0.1, 0.9, 0.5, 0.3, 0.2, 0.8])
    assert class_reservoirs(labels, weight, 4).tolist() == [1, 2, 3, 5]


def test_every_sample_of_a_step_stays_as_often() -> None:
    x, often = np.arange(20)[:, None], Counter[int]()
    for seed in range(200):
        often.update(balanced([], x, np.zeros(20, np.int64), 10, np.random.default_rng(seed))[0][0].ravel().tolist())
    assert len(often) == 20
    assert all(abs(n - 100) < 5 * np.sqrt(50) for n in often.values())


def test_one_of_three_stays_in_a_memory_of_one_with_equal_probability() -> None:
    often = Counter[int]()
    for seed in range(900):
        memory = samplers.Dark(1, np.random.default_rng(seed))
        for place in range(3):
            memory.add(torch.tensor([[float(place)]]), torch.tensor([place]), torch.zeros(1, 2))
        often[int(memory.y[0])] += 1
    assert all(abs(often[place] - 300) < 5 * np.sqrt(200) for place in range(3))


def test_a_queue_gives_the_newest() -> None:
    assert samplers.Fifo(np.random.default_rng(0)).draw(past([0] * 9, 6), 4).tolist() == [5, 6, 7, 8]


def test_the_largest_class_makes_room() -> None:
    sampler = samplers.Balanced(np.random.default_rng(0), memory=4)
    sampler.grow(past([0, 0, 0, 0, 0, 0, 1], 0))
    assert {label: len(places) for label, places in sampler.members.items()} == {0: 3, 1: 1}


def test_a_vote_has_halved_after_a_half_life() -> None:
    learner = Knn(k=3, half_life=2)
    learner.begin(Task(2, (2,)), np.random.default_rng(0))
    x = np.array([[1.0, 0], [0, 1], [1, 0]], np.float32)
    learner.learn(x, np.array([0, 0, 1]))  # the sample of class 0 with the same features is two samples older
    label, sure = learner.predict(x[2:])
    assert (label[0], sure[0]) == (1, pytest.approx(2 / 3, abs=1e-4))


def test_the_majority_is_that_of_all_steps() -> None:
    learner = Majority()
    learner.begin(Task(2, (1,)), np.random.default_rng(0))
    for labels in ([1, 1, 1], [0, 0]):
        learner.learn(np.zeros((len(labels), 1)), np.array(labels))
    answers: Any = learner.predict(np.zeros((2, 1)))
    assert np.asarray(answers[0] if isinstance(answers, tuple) else answers).tolist() == [1, 1]
