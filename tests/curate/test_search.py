"""Search: exact search equals brute force for any threads, blocks and files; approximate search measures its recall."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curate.core.errors import BadInput, IntegrityError
from curate.core.executor import Executor
from curate.retrieval import exact_search as searching
from curate.retrieval.approximate import approximate_search
from curate.retrieval.exact_search import SearchResult, search
from curate.retrieval.vector_store import Store, vector_file

QUIET = [HealthCheck.function_scoped_fixture]


def grid(n: int, width: int, seed: int, levels: int = 2) -> np.ndarray:
    """Unit vectors on a coarse grid, so that many cosines are equal."""
    raw = np.random.default_rng(seed).integers(-levels, levels + 1, (n, width)).astype(np.float32) + 0.5
    return (raw / np.linalg.norm(raw, axis=1, keepdims=True)).astype(np.float32)


def store_of(x: np.ndarray, buckets: np.ndarray, folder: Path, cuts: list[int], seed: int = 0) -> Store:
    """Vectors in several files, ids in random order."""
    parts = []
    for i, piece in enumerate(np.split(x, cuts)):
        np.save(folder / f"{i}.npy", piece)
        parts.append(vector_file(folder / f"{i}.npy"))
    ids = [f"id{i:04d}" for i in np.random.default_rng(seed).permutation(len(x))]
    return Store(tuple(parts), buckets.astype(np.int32), pa.chunked_array([pa.array(ids)]))


def brute(store: Store, queries: np.ndarray, groups: list[int], bucket: int, k: int, side: str) -> list[list[tuple]]:
    """Every score in float64, rounded once, sorted by score and id."""
    rows = np.flatnonzero(store.buckets == bucket)
    x = store.take(rows).astype(np.float64)
    ids = store.names(rows)
    ends = [*groups[1:], len(queries)]
    found = []
    for a, b in zip(groups, ends, strict=True):
        scores = np.stack([np.einsum("nd,d->n", x, q) for q in queries[a:b].astype(np.float64)]).max(0)
        listed = sorted(zip(scores.astype(np.float32), ids, strict=True), key=lambda p: (p[0], p[1]))
        if side == "top":
            listed.sort(key=lambda p: -p[0])  # stable: ids stay in order among equals
        found.append([(id_, score) for score, id_ in listed[:k]])
    return found


def ranked_ids(store: Store, found: SearchResult, side: str, bucket: int) -> list[list[tuple]]:
    return [list(zip(store.names(r.rows), r.scores, strict=True)) for r in found.ranked[side][bucket]]


@settings(max_examples=60, suppress_health_check=QUIET)
@given(st.integers(1, 60), st.integers(1, 40), st.integers(0, 999), st.sampled_from([np.float16, np.float32]))
def test_search_equals_brute_force_with_many_ties(tmp_path: Path, n: int, k: int, seed: int, dtype: type) -> None:
    x = np.repeat(grid(n, 4, seed), 2, axis=0).astype(dtype)
    queries, groups = grid(5, 4, seed + 1), [0, 2, 3]
    store = store_of(x, np.arange(2 * n) % 3, tmp_path, [n // 2, n], seed)
    found = search(store, queries, k, [0, 2], groups)
    for side in ("top", "bottom"):
        for bucket in (0, 2):
            assert ranked_ids(store, found, side, bucket) == brute(store, queries, groups, bucket, k, side)


def test_threads_and_blocks_do_not_change_a_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = grid(20_000, 16, 1, levels=9)
    store = store_of(x, np.arange(20_000) // 9_000, tmp_path, [4_000, 4_001, 13_000])
    queries = grid(7, 16, 2)
    plain = search(store, queries, 50, [0, 1, 2])
    monkeypatch.setattr(searching, "BLOCK_BYTES", 4096 * 4)
    other = search(store, queries, 50, [0, 1, 2], executor=Executor(workers=3), memory=1)  # one concept a pass
    for side in ("top", "bottom"):
        for bucket in (0, 1, 2):
            assert ranked_ids(store, plain, side, bucket) == ranked_ids(store, other, side, bucket)
            assert ranked_ids(store, plain, side, bucket) == brute(store, queries, list(range(7)), bucket, 50, side)


def test_a_pass_drops_rows_that_cannot_be_among_the_best() -> None:
    best = searching._Collector(cells=1, depth=10, slack=0.01)
    rng = np.random.default_rng(0)
    most = 0
    for i in range(200):
        scores = rng.random(100, dtype=np.float32)
        good = scores >= best.least[0]
        best.add(searching._Candidates(np.zeros(good.sum(), np.int32), np.arange(good.sum()) + 100 * i, scores[good]))
        most = max(most, best._size)
    assert len(best.shrink().rows) < 400
    assert most <= 500


def test_the_histogram_counts_every_image_of_the_asked_buckets(tmp_path: Path) -> None:
    x, queries = grid(500, 8, 0), grid(3, 8, 1)
    store = store_of(x, np.arange(500) % 2, tmp_path, [100])
    found = search(store, queries, 5, [1], bins=40)
    edges = np.linspace(-1, 1, 41)
    for c in range(3):
        assert found.histogram[1][c].sum() == 250
        scores = x[1::2] @ queries[c]
        assert np.abs(np.histogram(scores, edges)[0] - found.histogram[1][c]).sum() <= 4  # a score on an edge


def test_vectors_of_another_width_than_the_texts_are_refused(tmp_path: Path) -> None:
    store = store_of(grid(10, 8, 0), np.zeros(10), tmp_path, [])
    with pytest.raises(BadInput, match="vectors are 8 wide and the text encoder's are 6"):
        search(store, grid(2, 6, 0), 3, [0])


def test_a_file_without_a_matrix_of_floats_is_named(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(6))
    with pytest.raises(BadInput, match=r"x\.npy holds int64 of shape \(6,\)"):
        vector_file(tmp_path / "x.npy")
    (tmp_path / "y.npy").write_bytes(b"no numpy")
    with pytest.raises(IntegrityError, match=r"y\.npy cannot be read"):
        vector_file(tmp_path / "y.npy")


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    store = store_of(grid(5000, 8, 0), np.zeros(5000), tmp_path, [])
    with (tmp_path / "0.npy").open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(BadInput, match=r"0\.npy ends before its 5,000 vectors do"):
        search(store, grid(2, 8, 0), 3, [0])


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
def test_an_approximate_index_measures_its_recall(tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6000, 24)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    store = store_of(x, np.arange(6000) % 2, tmp_path, [2500])
    groups = list(range(5))
    lists, recall = approximate_search(store, x[:5] + 0.0, 40, 1, groups, kind)  # type: ignore[arg-type]
    truth = search(store, x[:5], 40, [1]).ranked["top"][1]
    hits = sum(len(np.intersect1d(a.rows, b.rows)) for a, b in zip(lists["top"], truth, strict=True))
    assert recall == hits / 200
    assert 0.5 < recall <= 1
    for found, exact in zip(lists["top"], truth, strict=True):
        assert found.scores[0] == exact.scores[0]
