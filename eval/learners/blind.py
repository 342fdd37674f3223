"""The blind classifier: repeats the label that was most frequent recently, and ignores the samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pydantic import NonNegativeInt

from eval.learner import Array, Labels, Learner, Task

GRID = (1, 2, 5, 10, 20, 30, 40, 60, 75, 100, 250, 500, 1000, 5000, 25_000, 75_000)  # [EvalOCL]


class Window:
    """The most frequent of the last k labels. Ties: the newest label, if none is more frequent; if the mode has left
    the window, the lowest of the most frequent labels [EvalOCL]."""

    def __init__(self, k: int, n_classes: int) -> None:
        self.last, self.counts = np.zeros(k, np.int64), np.zeros(n_classes, np.int64)
        self.n, self.mode = 0, 0

    def add(self, label: int) -> None:
        """Append a label."""
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
    """Predicts the most frequent of the last k labels [near-future accuracy, sec. 4]."""

    k: NonNegativeInt = 0
    """labels; 0 searches the paper's grid along the stream: the k that would have predicted most of the labels so far,
    each from those before it (ties: the smaller k)"""

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """Start without labels."""
        self.windows = [Window(k, task.n_classes) for k in ((self.k,) if self.k else GRID)]
        self.right = np.zeros(len(self.windows), np.int64)

    def learn(self, x: Array, y: Labels) -> None:
        """Append the labels, one after the other."""
        for label in np.asarray(y).tolist():
            for i, window in enumerate(self.windows):
                self.right[i] += window.n > 0 and window.mode == label
                window.add(label)

    def predict(self, x: Array) -> Labels:
        """The same label for every sample; 0 before any label."""
        return np.full(len(x), self.windows[int(self.right.argmax())].mode, np.int64)

    def stored_bytes(self) -> int:
        """Labels and counts of all windows."""
        return sum(w.last.nbytes + w.counts.nbytes for w in self.windows)
