"""Search: exact search equals brute force for any threads, blocks and files."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from driftline.curate.core.errors import BadInput, IntegrityError
from driftline.curate.core.executor import Executor
from driftline.curate.embedding.vector_store import VectorStore, vector_file
from driftline.curate.retrieval import scan as searching
from driftline.curate.retrieval.best_lists import BestLists, places
from driftline.curate.retrieval.exact_search import SearchResult, search

QUIET = [HealthCheck.function_scoped_fixture]


def grid(n: int, width: int, seed: int, levels: int = 2) -> np.ndarray:
    """Unit vectors on a coarse grid, so that many cosines are equal."""
    raw = np.random.default_rng(seed).integers(-levels, levels + 1, (n, width)).astype(np.float32) + 0.5
    return (raw / np.linalg.norm(raw, axis=1, keepdims=True)).astype(np.float32)


def store_of(x: np.ndarray, buckets: np.ndarray, folder: Path, cuts: list[int], seed: int = 0) -> VectorStore:
    """Vectors in several files, ids in random order."""
    parts = []
    for i, piece in enumerate(np.split(x, cuts)):
        np.save(folder / f"{i}.npy", piece)
        parts.append(vector_file(folder / f"{i}.npy"))
    ids = [f"id{i:04d}" for i in np.random.default_rng(seed).permutation(len(x))]
    return VectorStore(tuple(parts), buckets.astype(np.int32), pa.chunked_array([pa.array(ids)]))


def brute(
    store: VectorStore, queries: np.ndarray, groups: list[int], bucket: int, k: int, side: str
) -> list[list[tuple]]:
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


def ranked_ids(store: VectorStore, found: SearchResult, side: str, bucket: int) -> list[list[tuple]]:
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
    other = search(store, queries, 50, [0, 1, 2], executor=Executor(workers=3), memory=1)
    for side in ("top", "bottom"):
        for bucket in (0, 1, 2):
            assert ranked_ids(store, plain, side, bucket) == ranked_ids(store, other, side, bucket)
            assert ranked_ids(store, plain, side, bucket) == brute(store, queries, list(range(7)), bucket, 50, side)


def lists_of(x: np.ndarray, depth: int, memory: int = 1 << 20) -> BestLists:
    """Lists of one cell whose scores are the numbers x."""
    return BestLists(1, depth, 0.01, memory, None, lambda _, rows: x[rows], lambda rows: [f"{r:05d}" for r in rows])


@pytest.mark.parametrize("memory", [0, 1 << 20])
def test_lists_stay_within_their_places_and_keep_the_best(memory: int) -> None:
    x = np.random.default_rng(0).random(20_000, dtype=np.float32)
    best, entered = lists_of(x, 10, memory), 0
    for rows in np.split(np.arange(20_000), 200):
        rows = rows[x[rows] + 0.01 >= best.least[0]]
        entered += len(rows)
        exact = rows % 3 == 0
        lower = np.where(exact, x[rows], x[rows] - np.float32(0.01)).astype(np.float32)
        best.add(np.zeros(len(rows), np.int64), rows, lower, exact, 1)
        assert best.counts[0] <= places(10)
    best.finish()
    assert best.rows[0, :10].tolist() == np.argsort(-x)[:10].tolist()
    assert entered < 2_000


def test_of_equal_exact_scores_the_first_ids_stay_however_many_come() -> None:
    x = np.ones(5_000, np.float32)
    best = lists_of(x, 7)
    for rows in np.split(np.random.default_rng(0).permutation(5_000), 50):
        best.add(np.zeros(100, np.int64), rows, x[rows], np.ones(100, bool), 1)
    best.finish()
    assert best.rows[0, :7].tolist() == list(range(7))


class Reader:
    """Counts the bytes that are read of vectors, the first and the second time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        read, take = searching.read_into, VectorStore.take

        def counted(file: int, view: memoryview, offset: int) -> int:
            n = read(file, view, offset)
            self.bytes += n
            return n

        def taken(store: VectorStore, rows: np.ndarray) -> np.ndarray:
            x = take(store, rows)
            self.bytes += x.nbytes
            return x

        monkeypatch.setattr(searching, "read_into", counted)
        monkeypatch.setattr(VectorStore, "take", taken)


@pytest.mark.parametrize("order", ["random", "ascending", "descending"])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_thousand_concepts_read_every_vector_once(tmp_path, monkeypatch, order, workers):
    monkeypatch.setattr(searching, "WINDOW", 1024)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((30_000, 16)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    queries = rng.standard_normal((1_000, 16)).astype(np.float32)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    if order != "random":  # the files are sorted by what all concepts look for
        queries[:, 0] = 2
        queries /= np.linalg.norm(queries, axis=1, keepdims=True)
        x = x[np.argsort(x[:, 0] if order == "ascending" else -x[:, 0])]
    store = store_of(x, rng.integers(0, 3, len(x)), tmp_path, [7_000])
    reader = Reader(monkeypatch)
    found = search(store, queries, 20, [0, 2], executor=Executor(workers=workers), memory=1, folder=tmp_path)
    assert reader.bytes == found.bytes_read
    assert x.nbytes <= reader.bytes <= 1.2 * x.nbytes
    for c in (0, 1, 127, 128, 500, 999):
        for side in ("top", "bottom"):
            ranked = found.ranked[side][2][c]
            exact = brute(store, queries[c : c + 1], [0], 2, 20, side)[0]
            assert list(zip(store.names(ranked.rows), ranked.scores, strict=True)) == exact


@pytest.mark.parametrize(("equal", "most"), [(False, 1.2), (True, 2.0)])
def test_few_concepts_with_short_lists_read_few_vectors_again(tmp_path, monkeypatch, equal, most):
    rng = np.random.default_rng(0)
    x = np.ones((30_000, 16), np.float32) if equal else rng.standard_normal((30_000, 16)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    queries = x[:3] + np.float32(0)
    store = store_of(x, rng.integers(0, 3, len(x)), tmp_path, [7_000])
    reader = Reader(monkeypatch)
    found = search(store, queries, 20, [0, 2], executor=Executor(workers=2))
    assert reader.bytes == found.bytes_read <= most * x.nbytes
    for side in ("top", "bottom"):
        assert ranked_ids(store, found, side, 2) == brute(store, queries, [0, 1, 2], 2, 20, side)


def test_vectors_are_read_once_where_early_ones_are_nearer_to_all_concepts(tmp_path, monkeypatch):
    monkeypatch.setattr(searching, "WINDOW", 1024)  # in the order of the file 1.4 times the vectors are read
    rng = np.random.default_rng(0)
    x = rng.standard_normal((30_000, 16)).astype(np.float32)
    x[:, 0] += np.linspace(1.2, -1.2, len(x), dtype=np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    queries = rng.standard_normal((1_000, 16)).astype(np.float32)
    queries[:, 0] = np.abs(queries[:, 0]) + 2
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    store = store_of(x, rng.integers(0, 3, len(x)), tmp_path, [7_000])
    assert search(store, queries, 200, [0, 2]).bytes_read <= 1.05 * x.nbytes


@settings(max_examples=25, suppress_health_check=QUIET)
@given(
    st.integers(1, 300), st.integers(1, 30), st.integers(0, 999), st.sampled_from([1, 3, 140]), st.sampled_from([1, 2])
)
def test_windows_chunks_and_files_do_not_change_an_answer(tmp_path, n, k, seed, concepts, levels):
    """Few concepts and many; equal cosines; buckets without vectors, that are not asked, and with fewer than k."""
    x = np.repeat(grid(n, 3, seed, levels), 2, axis=0).astype(np.float16)
    queries = grid(2 * concepts, 3, seed + 1, 9)
    groups = sorted(np.random.default_rng(seed).permutation(np.arange(1, 2 * concepts))[: concepts - 1].tolist() + [0])
    store = store_of(x, np.random.default_rng(seed).integers(-1, 4, 2 * n), tmp_path, [n // 2], seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "WINDOW", 128)
        patch.setattr(searching, "PRODUCTS", 128 * 8)
        found = search(store, queries, k, [3, 0, 9], groups, memory=seed)
    for side in ("top", "bottom"):
        for bucket in (3, 0, 9):
            assert ranked_ids(store, found, side, bucket) == brute(store, queries, groups, bucket, k, side)


def test_lists_beyond_the_memory_lie_in_a_file_that_is_gone_afterwards(tmp_path: Path) -> None:
    store = store_of(grid(900, 8, 0), np.zeros(900), tmp_path, [])
    before = sorted(tmp_path.iterdir())
    small, large = (search(store, grid(3, 8, 1), 40, [0], memory=m, folder=tmp_path) for m in (0, 1 << 20))
    assert ranked_ids(store, small, "bottom", 0) == ranked_ids(store, large, "bottom", 0)
    assert sorted(tmp_path.iterdir()) == before
    with pytest.raises(FileNotFoundError):
        search(store, grid(3, 8, 1), 40, [0], memory=0, folder=tmp_path / "absent")


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
