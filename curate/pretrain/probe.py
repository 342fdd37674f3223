"""How good features are while they are learned: k-NN accuracy, which trains nothing [Wu et al. 2018, sec. 3.4]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from curate.encoders import Vectors

K, TEMPERATURE = 20, 0.07


@dataclass(frozen=True)
class Probe:
    """Labelled images: those voted with, and those asked. x: (N, room, room, 3) uint8. y: (N,) int64."""

    x: Any
    y: npt.NDArray[np.int64]
    test_x: Any
    test_y: npt.NDArray[np.int64]

    def accuracy(self, encode: Callable[[Any], Vectors]) -> float:
        """Share of `test_x` that is named right. encode: images → unit vectors (N, D)."""
        return float((vote(encode(self.x), self.y, encode(self.test_x)) == self.test_y).mean())


def vote(known: Vectors, labels: npt.NDArray[np.int64], asked: Vectors) -> npt.NDArray[np.int64]:
    """The class with most weight among the K nearest by cosine; a vote weighs exp(cosine / TEMPERATURE)."""
    classes = int(labels.max()) + 1
    out = []
    for low in range(0, len(asked), 1024):
        cosines = asked[low : low + 1024] @ known.T
        k = min(K, len(known))
        near = np.argpartition(-cosines, k - 1, axis=1)[:, :k]
        weights = np.exp(np.take_along_axis(cosines, near, 1) / TEMPERATURE)
        votes = np.zeros((len(cosines), classes))
        np.add.at(votes, (np.arange(len(cosines))[:, None], labels[near]), weights)
        out.append(votes.argmax(1))
    return np.concatenate(out)
