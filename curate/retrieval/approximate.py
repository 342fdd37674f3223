"""Approximate search with a faiss index, and its recall, measured against exact search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from driftline.curate.encoders import Vectors
from driftline.curate.retrieval.exact_search import Ranked, check_search, rank, search
from driftline.curate.retrieval.scan import Side
from driftline.curate.retrieval.vector_store import Store

SAMPLE = 16  # concepts whose exact lists are compared with the approximate ones


def approximate_search(
    store: Store,
    queries: Vectors,
    depth: int,
    bucket: int,
    groups: Sequence[int],
    kind: Literal["ivf", "hnsw"],
) -> tuple[dict[Side, list[Ranked]], dict[Side, float]]:
    """(side → ranked images of every concept in one bucket, side → recall); arguments as for `search`.

    recall: share of the exact list of `depth` that the index found, for up to SAMPLE concepts. All vectors
    of the bucket are loaded into memory.
    """
    import faiss

    check_search(store, queries, depth)
    rows = np.flatnonzero(store.buckets == bucket)
    x = store.take(rows).astype(np.float32)
    index: Any
    if kind == "ivf":
        lists = max(1, int(np.sqrt(len(x))))
        index = faiss.IndexIVFFlat(faiss.IndexFlatIP(store.width), store.width, lists, faiss.METRIC_INNER_PRODUCT)
        index.cp.seed, index.cp.min_points_per_centroid = 0, 1
        index.train(x)
        probes = -(-4 * depth * lists // max(1, len(x)))  # lists that hold about four times `depth` vectors
        index.nprobe = min(lists, max(1, lists // 4, probes))
    else:
        index = faiss.IndexHNSWFlat(store.width, 32, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction, index.hnsw.efSearch = 200, max(256, min(depth, len(x)))
    index.add(x)
    ends = [*groups[1:], len(queries)]
    ranked: dict[Side, list[Ranked]] = {"top": [], "bottom": []}
    for side in ranked:
        for low, high in zip(groups, ends, strict=True):
            signed = queries[low:high] if side == "top" else -queries[low:high]
            _, near = index.search(np.ascontiguousarray(signed), min(depth, len(x)))
            ranked[side].append(rank(store, rows[np.unique(near[near >= 0])], queries[low:high], depth, side))
    sample = list(range(0, len(groups), max(1, len(groups) // SAMPLE)))[:SAMPLE]
    texts = np.concatenate([queries[groups[c] : ends[c]] for c in sample])
    first = np.cumsum([0, *(ends[c] - groups[c] for c in sample[:-1])]).tolist()
    exact = search(store, texts, depth, [bucket], first).ranked
    recall: dict[Side, float] = {}
    for side in ranked:
        pairs = [(truth.rows, ranked[side][c].rows) for truth, c in zip(exact[side][bucket], sample, strict=True)]
        hits = sum(len(np.intersect1d(truth, near)) for truth, near in pairs)
        recall[side] = hits / max(1, sum(len(truth) for truth, _ in pairs))
    return ranked, recall
