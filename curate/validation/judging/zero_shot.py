"""The margin judge: the run's encoder and prompts answer where the best concept is clearly ahead of the second."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

LOGIT_SCALE = 100.0  # CLIP's: turns cosines into logits

Floats = npt.NDArray[np.floating]
Ints = npt.NDArray[np.int64]


def zero_shot(vectors: Floats, queries: Floats, first: Sequence[int], margin: float) -> tuple[Ints, Floats]:
    """(N,) concept numbers, -1 where the margin is smaller; (N,) softmax probabilities of the best concept.

    vectors: (N, D) unit vectors of images. queries: (Q, D) unit vectors of prompts. first: the first query of each of
    the C concepts; a concept's score is that of its best query. One concept alone is never ahead of another: all -1.
    """
    if len(first) < 2 or not len(vectors):
        return np.full(len(vectors), -1), np.zeros(len(vectors), np.float32)
    cosines = np.maximum.reduceat(vectors.astype(np.float32) @ queries.T, np.asarray(first), axis=1)
    best = cosines.argmax(1)
    top = cosines[np.arange(len(cosines)), best]
    second = np.partition(cosines, -2, axis=1)[:, -2]
    logits = LOGIT_SCALE * (cosines - top[:, None])
    return np.where(top - second >= margin, best, -1), np.asarray(1 / np.exp(logits).sum(1))
