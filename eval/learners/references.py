"""Answers that ignore the samples."""

from dataclasses import dataclass

import numpy as np
from pydantic import NonNegativeInt

from driftline.eval.learner import Array, Guide, Labels, Learner, Needs, Task


@dataclass
class Majority(Learner):
    """Predicts the most frequent class so far (ties: the lowest label; before any: 0)."""

    blind = True
    guide = Guide("references", "", "n", "what a model reaches that ignores the samples")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        self.counts = np.zeros(task.n_classes, np.int64)  # (C,)

    def predict(self, x: Array) -> Labels | tuple[Labels, Array]:
        """The same label for every sample, and the shares of the classes so far; equal before any."""
        counts = self.counts if self.counts.any() else np.ones(len(self.counts))
        return np.full(len(x), self.counts.argmax(), np.int64), np.tile(counts / counts.sum(), (len(x), 1))

    def learn(self, x: Array, y: Labels) -> None:
        self.counts += np.bincount(y, minlength=len(self.counts))


@dataclass
class Random(Learner):
    """Predicts classes uniformly at random; within a run the same batch always gets the same guesses."""

    blind = True
    guide = Guide("references", "", "one draw", "chance")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        self.n_classes, self.seed = task.n_classes, int(rng.integers(2**31))

    def predict(self, x: Array) -> Labels | tuple[Labels, Array]:
        """Guesses from a new generator with the run's seed, so that predicting changes nothing."""
        guesses = np.random.default_rng(self.seed).integers(self.n_classes, size=len(x), dtype=np.int64)
        return guesses, np.full(len(x), 1 / self.n_classes)

    def learn(self, x: Array, y: Labels) -> None:
        """Ignored."""


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
    """labels; 0 searches the paper's grid along the stream, for every shift: the k that would have been right most
    often so far, at this shift (ties: the smaller k)"""

    needs = Needs(single_samples=True)
    guide = Guide("references", "near-future accuracy", "n", "how far labels predict each other; to choose the shift")

    blind = True

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        self.windows = [Window(k, task.n_classes) for k in ((self.k,) if self.k else GRID)]
        self.right = {shift: np.zeros(len(self.windows), np.int64) for shift in (0, *task.shifts)}
        self.modes = np.zeros((1 + max(self.right), len(self.windows)), np.int64)  # after each of the last labels
        self.n = 0

    def learn(self, x: Array, y: Labels) -> None:
        """Append the labels, one after the other."""
        for label in np.asarray(y).tolist():
            for shift, right in self.right.items():
                if shift < self.n:
                    right += self.modes[(self.n - 1 - shift) % len(self.modes)] == label
            for i, window in enumerate(self.windows):
                window.add(label)
                self.modes[self.n % len(self.modes), i] = window.mode
            self.n += 1

    def predict(self, x: Array) -> Labels:
        """The same label for every sample; 0 before any label."""
        return self.predict_ahead(x, 0)

    def predict_ahead(self, x: Array, shift: int) -> Labels:
        """With the best k for this shift."""
        return np.full(len(x), self.windows[int(self.right[shift].argmax())].mode, np.int64)

    def stored_bytes(self) -> int:
        """Labels and counts of all windows, and the last modes."""
        return self.modes.nbytes + sum(w.last.nbytes + w.counts.nbytes for w in self.windows)
