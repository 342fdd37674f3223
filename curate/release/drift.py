"""Drift of a release: nearest class means of one bucket, tested on the others."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt


def drift(
    x: npt.NDArray[np.float32], y: npt.NDArray[np.int64], bucket: npt.NDArray[Any], side: npt.NDArray[Any]
) -> dict[str, Any]:
    """Accuracy of a nearest-class-mean classifier: trained on one bucket (row), tested on another (column).

    x: (N, D) vectors. y: (N,) labels from 0. bucket: (N,) numbers. side: (N,) "train" or "test". by_distance: mean over
    pairs of buckets at the same distance (0: in-domain; positive: forward in time).
    """
    numbers = sorted(set(bucket.tolist()))
    classes = int(y.max()) + 1
    tests = [np.flatnonzero((bucket == b) & (side == "test")) for b in numbers]
    matrix: list[list[float | None]] = []
    for b in numbers:
        train = np.flatnonzero((bucket == b) & (side == "train"))
        if not len(train):
            matrix.append([None] * len(numbers))
            continue
        sums = np.zeros((classes, x.shape[1]))
        np.add.at(sums, y[train], x[train])
        counts = np.bincount(y[train], minlength=classes)
        means = sums / np.maximum(counts, 1)[:, None]
        row: list[float | None] = []
        for test in tests:
            scores = x[test] @ means.T - (means**2).sum(1) / 2
            scores[:, counts == 0] = -np.inf
            row.append(float(np.mean(scores.argmax(1) == y[test])) if len(test) else None)
        matrix.append(row)
    at_distance: dict[int, list[float]] = defaultdict(list)
    for i, row in enumerate(matrix):
        for j, value in enumerate(row):
            if value is not None:
                at_distance[j - i].append(value)
    return {
        "buckets": numbers,
        "matrix": matrix,
        "by_distance": {str(d): float(np.mean(v)) for d, v in sorted(at_distance.items())},
    }
