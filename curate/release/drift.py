"""Drift of a release: nearest class means of one bucket, tested on the others."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


def of_release(
    rows: Sequence[Mapping[str, Any]], side: Sequence[str], vectors: Mapping[str, npt.NDArray[np.float16]]
) -> dict[str, Any]:
    """How the accuracy of nearest class means changes with the distance of the buckets, for the first features that did
    not choose the images, if there are any: those that chose them recognise them in every bucket."""
    name = list(vectors)[:2][-1]
    y, bucket = np.array([row["label"] for row in rows], np.int64), np.array([row["bucket"] for row in rows])
    measured = drift(np.asarray(vectors[name], np.float32), y, bucket, np.array(side))
    later = {d: v | {"change": round(v["change"], 4)} for d, v in measured["by_distance"].items() if int(d) > 0}
    in_domain = None if measured["in_domain"] is None else round(measured["in_domain"], 4)
    return {"features": name, "in_domain": in_domain, "by_distance": later}


def drift(
    x: npt.NDArray[np.float32], y: npt.NDArray[np.int64], bucket: npt.NDArray[Any], side: npt.NDArray[Any]
) -> dict[str, Any]:
    """Accuracy of a nearest-class-mean classifier: trained on one bucket (row), tested on another (column).

    x: (N, D) vectors. y: (N,) labels from 0. bucket: (N,) numbers. side: (N,) "train" or "test". Adds what `paired`
    says of the matrix.
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
    return {"buckets": numbers, "matrix": matrix, **paired(matrix)}


def paired(matrix: Sequence[Sequence[float | None]]) -> dict[str, Any]:
    """What the distance in time changes on the same test bucket: buckets differ in how hard they are, and each distance
    has other ones, so that means of all tests at a distance are no falls.

    matrix: (T, T) values, trained on (row) and tested on (column). Returns "in_domain", the mean of the diagonal (None
    if it is empty), and "by_distance": test bucket minus training bucket (negative: trained later) → "change", the mean
    difference to the model of the test bucket itself, and "tests", the number of test buckets that have both.

    >>> paired([[0.75, 0.5], [None, 0.25]])["by_distance"]["1"]  # 0.5 - 0.25, not 0.5 - 0.5
    {'change': 0.25, 'tests': 1}
    """
    changes: dict[int, list[float]] = defaultdict(list)
    own = [row[j] for j, row in enumerate(matrix)]
    for i, row in enumerate(matrix):
        for j, value in enumerate(row):
            reference = own[j]
            if value is not None and reference is not None:
                changes[j - i].append(value - reference)
    tested = [value for value in own if value is not None]
    return {
        "in_domain": float(np.mean(tested)) if tested else None,
        "by_distance": {
            str(d): {"change": float(np.mean(of_tests)), "tests": len(of_tests)}
            for d, of_tests in sorted(changes.items())
        },
    }
