"""Softmax probabilities of a network's scores, and small types for answers, in NumPy: on few numbers a call costs a
third of torch's."""

from typing import Any

import numpy as np
import numpy.typing as npt

Labels = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]
NO_ANSWER = -1  # in place of a class: wrong for each label


def best(scores: npt.NDArray[Any]) -> Labels:
    """Scores (N, C) → the best class (N,) of each row; `NO_ANSWER` where a score is NaN."""
    labels = scores.argmax(1)  # of a row with NaN, its place
    labels[np.isnan(scores[np.arange(len(scores)), labels])] = NO_ANSWER
    return np.asarray(labels, np.int64)


def sureness(scores: Scores, labels: Labels) -> npt.NDArray[np.float64]:
    """Scores (N, C) and their best classes (N,) → softmax probability (N,) of these; 0: none, or no finite scores."""
    with np.errstate(invalid="ignore"):  # class after class: rows are too short to be added quickly
        apart = np.subtract(scores, scores[np.arange(len(scores)), labels, None], order="F")
        total = np.add.reduce(np.exp(apart, apart), 1)
        return np.fmax(np.divide(1, total, dtype=np.float64), 0)  # of NaN and 0, `fmax` takes 0


def small(labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """In the smallest type that holds them."""
    if not len(labels):
        return labels.astype(np.uint8)
    # One pass for both ends: as unsigned numbers, those below 0 are the highest.
    unsigned = labels.view(np.uint64) if labels.dtype == np.int64 else labels.astype(np.int64).view(np.uint64)
    top = int(np.maximum.reduce(unsigned, axis=None))
    # `np.min_scalar_type` takes as long as the rest.
    kinds: dict[int, Any] = {8: np.uint8, 16: np.uint16, 32: np.uint32, 63: np.uint64}
    return labels.astype(next((kind for bits, kind in kinds.items() if top < 2**bits), np.int64))
