"""The memory of vectors: exact answers against brute force and faiss, whatever the blocks; recall of the index."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.curate.core.seeding import rng_for
from driftline.eval.memory import knn_index as knn
from driftline.eval.memory.knn_index import Memory, unit


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
    if not knn.halves():
        pytest.skip("this processor does not multiply bfloat16")
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
    if halves and not knn.halves():
        pytest.skip("this processor does not multiply bfloat16")
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
            assert answer is not None
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
