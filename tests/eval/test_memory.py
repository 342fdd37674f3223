"""What stays in a memory, and what answers become of it: against literal twins, by hand, over many draws."""

import pickle
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.helpers import drifting
from torch.nn.functional import cross_entropy, mse_loss

from driftline.curate.core.seeding import rng_for
from driftline.eval.engine.linear import Head, LinearSettings, step
from driftline.eval.learner import Task
from driftline.eval.learners.neighbours import Knn
from driftline.eval.learners.references import Majority
from driftline.eval.learners.replay import Icarl, Remember, herded
from driftline.eval.memory import knn_index as knn
from driftline.eval.memory import samplers
from driftline.eval.memory.knn_index import Memory, unit
from driftline.eval.memory.samplers import Dark, balanced, biased_reservoir, class_reservoirs, greedy_balanced
from driftline.eval.run import evaluate


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


# ---- DER, DER++ and iCaRL against literal transcriptions


STREAM = drifting()
TRAIN, TEST = STREAM.steps[0]["train"], STREAM.steps[0]["test"]
NAMES = ["der", "der++"]


def head() -> Head:
    return Head.new(3, 8, rng_for(3))


def filled(n: int = 12) -> Dark:
    """A memory of n samples with scores of another head."""
    memory = Dark(n, rng_for(1))
    x = torch.from_numpy(TRAIN.x[:n])
    memory.add(x, torch.from_numpy(TRAIN.y[:n]), Head.new(3, 8, rng_for(9)).scores(x))
    return memory


def batch() -> tuple[Any, Any]:
    return torch.from_numpy(TRAIN.x[20:30]), torch.from_numpy(TRAIN.y[20:30])


class TestDark:
    def test_it_is_algorithm_r_in_any_portions(self) -> None:
        counts = np.zeros(40)
        for seed in range(300):
            memory = Dark(5, rng_for(seed))
            for low in range(0, 40, 8):
                numbers = torch.arange(low, low + 8)
                memory.add(numbers[:, None].float(), numbers, torch.zeros(8, 1))
            assert len(set(memory.y.tolist())) == 5
            counts[memory.y.numpy()] += 1
        assert abs(counts[:8].mean() - counts[-8:].mean()) < 8  # 37.5 expected for all

    def test_until_it_is_full_it_keeps_everything(self) -> None:
        memory = filled()
        assert len(memory) == 12
        assert (memory.x.numpy() == TRAIN.x[:12]).all()


@pytest.mark.parametrize("beta", [0.0, 0.7])
def test_der_is_the_gradient_of_its_loss(beta: float) -> None:
    """Buzzega et al. 2020, algorithms 1 and 2, by autograd; the same draws of the memory."""
    net, memory, twin = head(), filled(), filled()
    x, y = batch()
    weights = [p.clone().requires_grad_() for p in net.params]

    def scores(inputs: Any) -> Any:
        return inputs @ weights[0].T + weights[1]

    past, _, stored = twin.draw(len(y))
    loss = cross_entropy(scores(x), y) + 0.4 * mse_loss(scores(past), stored)
    if beta:
        past, labels, _ = twin.draw(len(y))
        loss = loss + beta * cross_entropy(scores(past), labels)
    loss.backward()
    grads = Remember(memory, 0.4, beta).gradient(net, net.data_gradient(x, y), x, y)
    assert all(torch.allclose(g, w.grad, atol=1e-5) for g, w in zip(grads, weights, strict=True))


def test_der_stores_the_scores_from_before_the_update() -> None:
    net, memory = head(), Dark(100, rng_for(0))
    x, y = batch()
    before = net.scores(x).clone()
    step(net, x, y, 1.0, LinearSettings(), Remember(memory, 0.5, 0.0))
    assert torch.allclose(memory.scores[:10], before)
    assert not torch.allclose(net.scores(x), before)


def test_herding_is_algorithm_4() -> None:
    x = TRAIN.x[:20] / np.linalg.norm(TRAIN.x[:20], axis=1, keepdims=True)
    mean, chosen = x.mean(0), []
    for k in range(1, 8):
        distances = [
            np.inf if i in chosen else np.linalg.norm(mean - (x[[*chosen, i]]).sum(0) / k) for i in range(len(x))
        ]
        chosen.append(int(np.argmin(distances)))
    assert herded(x, mean.astype(np.float64), 7).tolist() == chosen


def test_icarl_keeps_its_memory_and_answers_with_the_nearest_mean_of_exemplars() -> None:
    learner = Icarl(memory=12)
    learner.begin(Task(3, (8,)), rng_for(0))
    two = TRAIN.y < 2
    learner.learn(TRAIN.x[two], TRAIN.y[two])
    assert [len(e) for e in learner.exemplars] == [6, 6, 0]
    first = learner.exemplars[0].copy()
    learner.learn(TRAIN.x[~two], TRAIN.y[~two])
    assert [len(e) for e in learner.exemplars] == [4, 4, 4]
    assert (learner.exemplars[0] == first[:4]).all()  # the best ones stay
    means = np.stack([e.mean(0) for e in learner.exemplars])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    x = TEST.x / np.linalg.norm(TEST.x, axis=1, keepdims=True)
    nearest = np.linalg.norm(x[:, None] - means, axis=2).argmin(1)
    assert (learner.predict(TEST.x) == nearest).all()


def test_replay_forgets_less_than_finetuning() -> None:
    """The published finding: DER++ keeps old tasks that plain finetuning forgets [Buzzega et al. 2020]. Here
    each step has one class of its own."""
    steps = []
    for k, old in enumerate(drifting(steps=3, drift=0.0).steps):
        train = old["train"].take(np.flatnonzero(old["train"].y == k))
        steps.append(type(old)(k, str(k), {"train": train, "test": old["test"]}))
    apart = type(STREAM)("apart", steps, STREAM.classes, sha256="apart")
    found = evaluate(apart, "clear-iid", ["finetune", *NAMES, "icarl"], settings={"epochs": 20, "batch": 16})
    last = {result["learner"]: result["matrix"][-1][-1] for result in found["results"]}
    assert all(last[name] > last["finetune"] + 0.2 for name in (*NAMES, "icarl")), last


# ---- the memory of vectors: exact answers against brute force and faiss, whatever the blocks; recall of the index


def vectors(n: int, width: int = 16, seed: int = 0) -> np.ndarray:
    return rng_for(seed, "vectors").normal(size=(n, width)).astype(np.float32)


def brute(x: np.ndarray, q: np.ndarray, k: int) -> np.ndarray:
    """Older first among equals."""
    return np.argsort(-(unit(q) @ unit(x).T), axis=1, kind="stable")[:, :k]


@pytest.mark.parametrize("rows", [7, 64, 16_384])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_a_search_equals_brute_force_for_any_blocks(k: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knn, "ROWS", rows)
    x, memory = vectors(300), Memory(16)
    for low in range(0, 300, 43):
        memory.add(x[low : low + 43])
    cosines, positions = memory.search(vectors(20, seed=1), k)
    assert positions.tolist() == brute(x, vectors(20, seed=1), k).tolist()
    assert (np.diff(cosines, axis=1) <= 0).all()


@pytest.mark.parametrize("spread", [1.0, 0.02])
def test_bfloat16_gives_the_answers_of_float32(spread: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where all cosines are nearly 1, so that rounding cannot tell them apart."""
    x, q = (1 + spread * vectors(n, seed=n) for n in (5000, 300))
    found = []
    for halves in (True, False):
        monkeypatch.setattr(knn, "halves", lambda halves=halves: halves)
        memory = Memory(16)
        memory.add(x)
        found.append(memory.search(q, 5))
        assert bool(memory.copies) == halves
    assert (found[0][1] == found[1][1]).all()
    assert (found[0][0] == found[1][0]).all()


@pytest.mark.parametrize("halves", [False, True])
def test_vectors_that_all_point_away_are_searched_too(halves: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cosine is above 0, and many candidates are no reason to begin again in float32."""
    monkeypatch.setattr(knn, "halves", lambda: halves)
    monkeypatch.setattr(knn, "FEW", 1)
    x, q, memory = -abs(vectors(5000)), abs(vectors(300, seed=1)), Memory(16)
    memory.add(x)
    cosines, positions = memory.search(q, 5)
    assert cosines.max() < 0
    assert positions.tolist() == brute(x, q, 5).tolist()


def test_kept_queries_have_the_answers_of_a_new_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a part of them was asked for before the others, and if a block begins between two questions."""
    monkeypatch.setattr(knn, "ROWS", 64)
    x, memory, parts = vectors(300), Memory(16), [vectors(40, seed=1), vectors(30, seed=2)]
    memory.add(x[:3])  # fewer than k
    kept = knn.TrackedQueries(memory, parts, 5)
    for low, high in ((3, 4), (4, 60), (60, 61), (61, 300)):
        memory.add(x[low:high])
        for asked in (parts[0][7:8], parts[1], parts[0][5:20], parts[0]) if high in (60, 300) else (parts[0][9:11],):
            answer = kept.nearest(asked)
            fresh = memory.search(asked, 5)
            assert answer[1].tolist() == fresh[1].tolist() == brute(x[:high], asked, 5).tolist()
            assert (answer[0] == fresh[0]).all()
    assert kept.nearest(parts[0].copy()) is None


@pytest.mark.parametrize("spread", [1.0, 0.02])
def test_a_device_gives_the_answers_of_the_processor(spread: float) -> None:
    """ "cpu:0" stands in for a GPU: the products are of a copy, in float32, whatever the processor has."""
    x, q = (1 + spread * vectors(n, seed=n) for n in (5000, 300))
    here, there = Memory(16), Memory(16, device="cpu:0")
    for memory in (here, there):
        memory.add(x[:3000])
        memory.add(x[3000:])
    assert {copy.dtype for copy in there.copies} == {torch.float32}
    for of_here, of_there in zip(here.search(q, 5), there.search(q, 5), strict=True):
        assert (of_here == of_there).all()


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(1, 6))
def test_among_equals_the_older_comes_first(kinds: list[int], k: int) -> None:
    x = np.eye(4, dtype=np.float32)[kinds]
    memory = Memory(4)
    memory.add(x)
    assert memory.search(np.eye(4, dtype=np.float32), k)[1].tolist() == brute(x, np.eye(4), min(k, len(x))).tolist()


def test_faiss_names_the_same_neighbours() -> None:
    import faiss

    x, q = vectors(2000), vectors(100, seed=1)
    index = faiss.IndexFlatIP(16)
    index.add(unit(x))
    memory = Memory(16)
    memory.add(x)
    assert (index.search(unit(q), 5)[1] == memory.search(q, 5)[1]).mean() > 0.999


def test_blocks_above_the_limit_of_main_memory_are_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knn, "ROWS", 4096)
    x, memory = vectors(20_000), Memory(16, limit_mb=1)
    memory.add(x)
    assert sum(isinstance(block, np.memmap) for block in memory.blocks) == 1
    assert memory.search(x[:50], 1)[1][:, 0].tolist() == list(range(50))


def test_above_a_size_an_index_answers_and_its_recall_is_known() -> None:
    x = vectors(3000)
    memory = Memory(16, exact_below=1000)
    for low in range(0, 3000, 250):
        memory.learn(x[low : low + 250], np.arange(low, low + 250), 5)
    assert memory.index is not None
    assert [n for n, _ in memory.recalls] == [1250, 2500]
    assert all(recall > 0.9 for _, recall in memory.recalls)
    assert (memory.labels[memory.search(x[:100], 1)[1][:, 0]] == np.arange(100)).mean() > 0.95


def test_a_memory_with_an_index_keeps_no_state() -> None:
    memory = Memory(16, exact_below=100)
    memory.add(vectors(300))
    with pytest.raises(TypeError, match="300 vectors has an approximate index"):
        pickle.dumps(memory)


def test_a_stored_memory_continues_alike() -> None:
    x, memory = vectors(500), Memory(16)
    memory.add(x[:300])
    again: Memory = pickle.loads(pickle.dumps(memory))
    for one in (memory, again):
        one.add(x[300:])
    q = vectors(30, seed=1)
    assert memory.search(q, 4)[1].tolist() == again.search(q, 4)[1].tolist()


def test_images_are_vectors_too() -> None:
    x = rng_for(0).integers(0, 256, (5, 4, 4, 3)).astype(np.uint8)
    memory = Memory(48)
    memory.add(x)
    assert memory.search(x, 1)[1][:, 0].tolist() == [0, 1, 2, 3, 4]
