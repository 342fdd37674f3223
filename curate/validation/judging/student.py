"""The student: a linear classifier on the run's vectors, trained on people's answers, in each bucket by itself.

Cross-fitted: an image that people answered is judged by a classifier that did not see its answer, so that the student's
errors on answered images are those on all images [cross-prediction, Zrnic & Candès 2024].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from driftline.curate.core.seeding import rng_for

L2 = 0.01  # on features of unit mean square
STEPS = 40  # of L-BFGS

Floats = npt.NDArray[np.floating]
Ints = npt.NDArray[np.int64]


def cross_fitted(
    features: Floats,
    buckets: Ints,
    labels: Ints,
    n_labels: int,
    folds: int,
    each: int,
    seed: int,
    groups: Ints | None = None,
) -> Floats:
    """(N, L) probabilities; rows of zeros where the student does not answer.

    features: (N, D). buckets: (N,). labels: (N,) people's labels, -1 where they gave none. A class with fewer than
    `each` answered images in a bucket is not learned there, and a bucket with fewer than two such classes is not
    judged. groups: (N,) near copies and photos of one uploader have one number; default: each image its own. Images
    whose group has a label are judged by the classifier that did not see the group, others by the mean of all.
    """
    from scipy.special import softmax

    groups = np.arange(len(features)) if groups is None else groups
    out = np.zeros((len(features), n_labels))
    for bucket in np.unique(buckets).tolist():
        rows = np.flatnonzero(buckets == bucket)
        counts = np.bincount(labels[rows][labels[rows] >= 0], minlength=n_labels)
        classes = np.flatnonzero(counts >= each)
        if len(classes) < 2:
            continue
        answered = rows[np.isin(labels[rows], classes)]
        x = features[rows].astype(np.float32)
        x = (x - x.mean(0)) / max(float(x.std()), 1e-12)
        place = np.searchsorted(rows, answered)
        y = np.searchsorted(classes, labels[answered])
        fold_of = _folds(y, groups[answered], folds, rng_for(seed, "student", bucket))
        fold = np.array([fold_of.get(g, -1) for g in groups[rows].tolist()])  # -1: no answer in its group
        used = [k for k in range(folds) if (fold[place] == k).any()]
        if len(used) < 2:  # one group has all answers: nothing else to learn from
            continue
        for k in used:
            learned = place[fold[place] != k]
            weights = _softmax_regression(x[learned], y[fold[place] != k], len(classes))
            probabilities = softmax(np.c_[x, np.ones(len(x))] @ weights, 1)
            out[rows[fold == k][:, None], classes] = probabilities[fold == k]
            out[rows[fold == -1][:, None], classes] += probabilities[fold == -1] / len(used)
    return out


def _folds(y: Ints, groups: Ints, folds: int, rng: np.random.Generator) -> dict[int, int]:
    """Group → fold: large groups first, each to the fold that has the smallest part of its classes, so that every class
    is in nearly equal parts."""
    _, number, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    order = np.lexsort((rng.random(len(sizes)), -sizes))
    members = np.split(np.argsort(number, kind="stable"), np.cumsum(sizes)[:-1])
    load = np.zeros((folds, int(y.max()) + 1))
    fold_of = {}
    for g in order.tolist():
        counts = np.bincount(y[members[g]], minlength=load.shape[1])
        k = int(np.lexsort((load.sum(1), load @ counts))[0])
        load[k] += counts
        fold_of[int(groups[members[g][0]])] = k
    return fold_of


def _softmax_regression(x: Floats, y: Ints, n_classes: int) -> Floats:
    """(D + 1, C) weights, the last row is the bias; minimises mean cross-entropy + L2 ‖W‖²/2."""
    from scipy.optimize import minimize
    from scipy.special import softmax

    x = np.c_[x, np.ones(len(x), x.dtype)]
    target = np.eye(n_classes, dtype=x.dtype)[y]

    def loss(flat: Floats) -> tuple[float, Floats]:
        weights = flat.reshape(x.shape[1], n_classes).astype(x.dtype)
        chances = softmax(x @ weights, 1)
        value = -np.log(np.maximum(chances[np.arange(len(y)), y], 1e-300)).mean() + L2 * float((weights**2).sum()) / 2
        return float(value), np.asarray(x.T @ (chances - target) / len(y) + L2 * weights, np.float64).ravel()

    start = np.zeros(x.shape[1] * n_classes)
    return np.asarray(minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": STEPS}).x).reshape(
        x.shape[1], n_classes
    )


def answers_of(probabilities: Floats, names: Sequence[str]) -> list[tuple[list[str], float]]:
    """(labels, confidence) of each row; no label where none is more probable than all others together."""
    best = probabilities.argmax(1)
    sure = probabilities.max(1)
    return [([names[b]] if s > 0.5 else [], float(s)) for b, s in zip(best.tolist(), sure.tolist(), strict=True)]
