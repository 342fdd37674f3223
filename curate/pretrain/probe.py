"""Quality of features during training: k-NN accuracy, which needs no training of its own [Wu et al. 2018, sec. 3.4]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.encoders import Vectors

K, TEMPERATURE = 20, 0.07


@dataclass(frozen=True)
class Probe:
    """Labelled images for the k-NN classifier, and test images."""

    x: Any
    """(N, room, room, 3) uint8"""
    y: npt.NDArray[np.int64]
    """(N,)"""
    test_x: Any
    """(M, room, room, 3) uint8"""
    test_y: npt.NDArray[np.int64]
    """(M,)"""

    def accuracy(self, encode: Callable[[Any], Vectors]) -> float:
        """Share of test images with the correct class. encode: images → unit vectors (N, D)."""
        return float((vote(encode(self.x), self.y, encode(self.test_x)) == self.test_y).mean())


def vote(x: Vectors, labels: npt.NDArray[np.int64], queries: Vectors) -> npt.NDArray[np.int64]:
    """The class with the largest weight among the K nearest of `x` by cosine; a vote weighs exp(cosine /
    TEMPERATURE)."""
    classes = int(labels.max()) + 1
    out = []
    k = min(K, len(x))
    for low in range(0, len(queries), 1024):
        cosines = queries[low : low + 1024] @ x.T
        near = np.argpartition(-cosines, k - 1, axis=1)[:, :k]
        weights = np.exp(np.take_along_axis(cosines, near, 1) / TEMPERATURE)
        votes = np.zeros((len(cosines), classes))
        np.add.at(votes, (np.arange(len(cosines))[:, None], labels[near]), weights)
        out.append(votes.argmax(1))
    return np.concatenate(out)
