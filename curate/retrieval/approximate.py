"""Approximate search through a faiss index, with its recall measured against exact search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from curate.encoders import Vectors
from curate.retrieval.exact_search import SAMPLE, Kind, Ranked, Side, _check, rank, search
from curate.retrieval.vector_store import Store


def approximate(
    store: Store, queries: Vectors, depth: int, bucket: int, groups: Sequence[int], kind: Kind, sides: Sequence[Side]
) -> tuple[dict[str, list[Ranked]], float]:
    """The same for one bucket through a faiss index (`ivf` or `hnsw`); also its measured recall.

    recall: the share of the exact top `depth` that it found, over up to SAMPLE concepts. The bucket's vectors are in
    memory while it lasts.
    """
    import faiss

    index: Any
    _check(store, queries, depth)
    mine = np.flatnonzero(store.buckets == bucket)
    x = store.take(mine).astype(np.float32)
    if kind == "ivf":
        lists = max(1, int(np.sqrt(len(x))))
        index = faiss.IndexIVFFlat(faiss.IndexFlatIP(store.width), store.width, lists, faiss.METRIC_INNER_PRODUCT)
        index.cp.seed, index.cp.min_points_per_centroid = 0, 1
        index.train(x)
        deep = -(-4 * depth * lists // max(1, len(x)))  # lists that hold four times what is asked for
        index.nprobe = min(lists, max(1, lists // 4, deep))
    else:
        index = faiss.IndexHNSWFlat(store.width, 32, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction, index.hnsw.efSearch = 200, max(256, min(depth, len(x)))
    index.add(x)
    ends = [*groups[1:], len(queries)]
    found: dict[str, list[Ranked]] = {side: [] for side in sides}
    for side in sides:
        for low, high in zip(groups, ends, strict=True):
            signed = queries[low:high] if side == "top" else -queries[low:high]
            _, near = index.search(np.ascontiguousarray(signed), min(depth, len(x)))
            rows = mine[np.unique(near[near >= 0])]
            found[side].append(rank(store, rows, queries[low:high], depth, side))
    if "top" not in found:
        return found, 1.0
    sample = list(range(0, len(groups), max(1, len(groups) // SAMPLE)))[:SAMPLE]
    right = asked = 0
    for c in sample:
        truth = search(store, queries[groups[c] : ends[c]], depth, [bucket], [0], ("top",)).ranked["top"][bucket][0]
        right += len(np.intersect1d(truth.rows, found["top"][c].rows))
        asked += len(truth.rows)
    return found, right / max(1, asked)
