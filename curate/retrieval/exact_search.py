"""Exact search: the nearest and the farthest images of every concept in every bucket, in one pass over the vectors.

The result does not depend on the number of threads or machines: float32 products find every image that could be among
the best within their rounding error, and these are scored again in float64. Equal scores are ordered by id.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from driftline.curate.core.errors import BadConfig, BadInput
from driftline.curate.core.executor import Executor
from driftline.curate.embedding.vector_store import Ints, VectorStore
from driftline.curate.encoders import Vectors
from driftline.curate.retrieval.scan import Side, State, scan, sizes

MEMORY = 256 << 20  # bytes of the lists; longer ones lie in a temporary file


@dataclass(frozen=True)
class Ranked:
    """The ranked images of one concept in one bucket: best first, on the bottom side lowest first."""

    rows: Ints
    """(k,) rows of the store"""
    scores: Vectors
    """(k,) float32 cosines"""


@dataclass(frozen=True)
class SearchResult:
    """What `search` returns."""

    ranked: dict[Side, dict[int, list[Ranked]]]
    """[side][bucket][concept]"""
    bytes_read: int = 0
    """of vectors, those that were read a second time included"""


def search(
    store: VectorStore,
    queries: Vectors,
    depth: int,
    asked: Sequence[int],
    groups: Sequence[int] | None = None,
    sides: Sequence[Side] = ("top", "bottom"),
    executor: Executor | None = None,
    memory: int = MEMORY,
    folder: Path | None = None,
) -> SearchResult:
    """Rank the images of the `asked` buckets under every concept and keep the best `depth` of each side.

    queries: (Q, D) float32, unit length. groups: the first query of each concept (default: one query per concept); the
    score of a concept is the highest cosine of its queries, computed from the stored vectors in float64. memory:
    bytes for the lists, which all threads share; longer ones lie in a temporary file in `folder`
    (default: the system's). Beside them each thread needs some 100 MB at most, for any number of vectors and concepts.
    It runs on this machine, whatever the executor's engine.

    Raises BadConfig for a depth below 1, BadInput if vectors and queries have different widths.
    """
    groups = list(range(len(queries))) if groups is None else list(groups)
    if depth < 1:
        raise BadConfig(f"The depth of a search is {depth}.", "Expected at least 1.")
    if len(store) and store.width != queries.shape[1]:
        raise BadInput(
            f"The stored vectors are {store.width} wide and the text encoder's are {queries.shape[1]}.",
            "Expected one model for images and texts.",
            "Set embed.model and embed.weights to the model that made the vectors.",
        )
    executor = executor or Executor()
    asked = list(dict.fromkeys(asked))
    depth = min(depth, max([1, *sizes(store.buckets, asked).tolist()]))
    state = State(store, queries, tuple(groups), tuple(asked), depth, tuple(sides), memory, folder)
    threads = executor.workers if executor.kind == "local" else os.cpu_count() or 1
    edges = np.linspace(0, len(store), max(1, min(threads, len(store) // 4096)) + 1).astype(np.int64).tolist()
    for _ in Executor(workers=threads).run_tasks(scan, [(state, *part) for part in pairwise(edges)], threads=True):
        pass
    state.lists.finish()
    return SearchResult(_ranked(state), state.read)


def _ranked(state: State) -> dict[Side, dict[int, list[Ranked]]]:
    """The finished lists."""
    lists, concepts, buckets = state.lists, len(state.groups), len(state.asked)
    ranked: dict[Side, dict[int, list[Ranked]]] = {}
    for s, side in enumerate(state.sides):
        first = s * concepts * buckets
        if side == "bottom":
            part = lists.scores[first : first + concepts * buckets]
            np.negative(part, out=part)
        ends = lists.counts.tolist()
        ranked[side] = {
            bucket: [
                Ranked(lists.rows[cell, : ends[cell]], lists.scores[cell, : ends[cell]])
                for cell in range(first + b, first + concepts * buckets, buckets)
            ]
            for b, bucket in enumerate(state.asked)
        }
    return ranked
