"""Answers and their softmax probabilities from a network's scores, and small types for answers, in NumPy: on few
numbers a call costs a third of torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Labels = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]


def read(scores: Any) -> tuple[Labels, Scores]:
    """A tensor of scores (N, C) → the class of the highest (N,), the first of equal ones; and the scores, which may
    share the tensor's memory."""
    rows = scores.float().cpu().numpy()
    return rows.argmax(1), rows


def sureness(scores: Scores, labels: Labels) -> npt.NDArray[np.float64]:
    """Scores (N, C) and their best classes (N,) → softmax probability (N,) of these; 0: no finite scores."""
    with np.errstate(invalid="ignore"):  # class after class: rows are too short to be added quickly
        apart = np.subtract(scores, scores[np.arange(len(scores)), labels, None], order="F")
        total = np.add.reduce(np.exp(apart, apart), 1)
        return np.fmax(np.divide(1, total, dtype=np.float64), 0)  # of NaN and 0, `fmax` takes 0


def softmax(scores: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Scores (N, C) → probabilities (N, C); 0 for a row without finite scores."""
    with np.errstate(invalid="ignore"):
        powers = np.exp(np.subtract(scores, scores.max(1, keepdims=True), dtype=np.float64))
        return np.nan_to_num(powers / powers.sum(1, keepdims=True), copy=False)


def sure(scores: Any) -> tuple[Labels, npt.NDArray[np.float64]]:
    """A tensor of scores (N, C) → the class of the highest, and its softmax probability, (N,) each."""
    labels, rows = read(scores)
    return labels, sureness(rows, labels)


def small(labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """In the smallest type that holds them."""
    if not len(labels):
        return labels.astype(np.uint8)
    # One pass for both ends: as unsigned numbers, those below 0 are the highest.
    unsigned = labels.view(np.uint64) if labels.dtype == np.int64 else labels.astype(np.int64).view(np.uint64)
    top = int(np.maximum.reduce(unsigned, axis=None))
    return labels.astype(np.int64 if top >= 2**63 else _smallest(top))


def _smallest(top: int) -> type[np.unsignedinteger[Any]]:
    """The smallest type of numbers from 0 that has this one; `np.min_scalar_type` takes as long as the rest."""
    return np.uint8 if top < 2**8 else np.uint16 if top < 2**16 else np.uint32 if top < 2**32 else np.uint64
