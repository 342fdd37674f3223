"""The blind classifier: repeats the label that was most frequent of late, and never looks at a sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from curate.core.errors import BadConfig
from eval.learner import Array, Labels, Learner, Task

GRID = (1, 2, 5, 10, 20, 30, 40, 60, 75, 100, 250, 500, 1000, 5000, 25_000, 75_000)  # [EvalOCL]


class Window:
    """The most frequent of the last k labels. Ties: the newest label, if none is more frequent; where the mode leaves
    the window, the lowest of the most frequent [EvalOCL]."""

    def __init__(self, k: int, n_classes: int) -> None:
        self.last, self.counts = np.zeros(k, np.int64), np.zeros(n_classes, np.int64)
        self.n, self.mode = 0, 0

    def add(self, label: int) -> None:
        """One label more."""
        k = len(self.last)
        if self.n == 0:
            self.mode = label
        self.counts[label] += 1
        if self.n >= k:
            old = int(self.last[self.n % k])
            self.counts[old] -= 1
            if old == self.mode and label != self.mode:
                self.mode = int(self.counts.argmax())
        self.last[self.n % k] = label
        self.n += 1
        if self.counts[label] >= self.counts[self.mode]:
            self.mode = label


@dataclass
class Blind(Learner):
    """Predicts the most frequent of the last k labels [near-future accuracy, sec. 4].

    k: labels; 0 searches the paper's grid as the stream goes: the k whose prediction was right most often of the labels
    seen so far, each predicted from those before it (ties: the smaller k).
    """

    k: int = 0

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """No labels."""
        if self.k < 0:
            raise BadConfig(f"k is {self.k}.", "Expected a number of labels, or 0 to search.")
        self.windows = [Window(k, task.n_classes) for k in ((self.k,) if self.k else GRID)]
        self.right = np.zeros(len(self.windows), np.int64)

    def learn(self, x: Array, y: Labels) -> None:
        """Labels, one after the other."""
        for label in np.asarray(y).tolist():
            for i, window in enumerate(self.windows):
                self.right[i] += window.n > 0 and window.mode == label
                window.add(label)

    def predict(self, x: Array) -> Labels:
        """The same label for every sample; before any: 0."""
        return np.full(len(x), self.windows[int(self.right.argmax())].mode, np.int64)

    def stored_bytes(self) -> int:
        """The labels of the longest window, and counts."""
        return sum(w.last.nbytes + w.counts.nbytes for w in self.windows)
