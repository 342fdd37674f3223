"""The substrate: an append-only memory of everything seen and corrected, and a vote of the nearest [OCRR]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from curate.core.errors import BadConfig
from curate.core.torch_threads import one_thread
from eval.learner import Array, Labels, Learner, Task
from eval.memory.knn_index import MEASURED, Found, Memory, Watched

VOTES = ("band", "nearest", "sum", "count", "no-recency")


@dataclass
class Substrate(Learner):
    """Appends every sample; answers by the k nearest, by cosine, that are within `margin` of the nearest: the class
    with most of them, then the one whose best is nearest, then the one whose latest is latest.

    vote: "band" is that rule; the ablations are "nearest" (k = 1), "sum" (of the k cosines), "count" (most, then the
    nearest's) and "no-recency" (without the last tie-break). exact_below: samples up to which the search is exact;
    above, a faiss index answers ("hnsw" or "ivf"), and its recall stands beside every score.
    """

    k: int = 5
    margin: float = 0.05
    vote: str = "band"
    exact_below: int = 1_000_000
    index: str = "hnsw"

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """An empty memory."""
        if self.vote not in VOTES or self.k < 1 or self.index not in ("hnsw", "ivf"):
            raise BadConfig(
                f"vote is {self.vote!r}, k is {self.k}, index is {self.index!r}.",
                f"Expected {', '.join(VOTES)}; at least 1; hnsw or ivf.",
            )
        self.task, self.rng = task, rng
        self.memory = Memory(int(np.prod(task.x_shape)), self.exact_below, kind=self.index)
        self.labels = np.zeros(1024, np.int64)
        self.watched: Watched | None = None

    def learn(self, x: Array, y: Labels) -> None:
        """Append."""
        n = self.memory.n
        while n + len(y) > len(self.labels):
            self.labels = np.concatenate([self.labels, np.zeros_like(self.labels)])
        self.labels[n : n + len(y)] = y
        with one_thread():
            self.memory.measure(
                np.asarray(x)[:MEASURED], self.neighbours()
            )  # before they are in it and find themselves
            self.memory.add(x)
            if self.watched is not None:
                self.watched.grew(self.memory)

    def prepare(self, x: Any) -> None:
        """Their nearest are found at once, and kept up to date by what is appended."""
        with one_thread():
            self.watched = Watched(self.memory, x, self.neighbours())

    def neighbours(self) -> int:
        """How many are looked up."""
        return 1 if self.vote == "nearest" else self.k

    def predict(self, x: Array) -> Labels:
        """Before anything was learned: 0."""
        if not self.memory.n:
            return np.zeros(len(x), np.int64)
        return self.voted(*self.nearest(x))

    def nearest(self, x: Array) -> Found:
        """Cosines and positions (m, k), best first. Those that are expected are known; with an index, all are asked."""
        found = None if self.watched is None or self.memory.index is not None else self.watched.found(x)
        if found is not None:
            return found
        with one_thread():
            return self.memory.search(np.asarray(x), self.neighbours())

    def confidence(self, x: Array) -> npt.NDArray[np.float64] | None:
        """Share of the neighbours that bear the answer's label; with one neighbour, how near that is."""
        if not self.memory.n:
            return np.zeros(len(x))
        cosines, positions = self.nearest(x)
        if self.vote == "nearest":
            return np.asarray(cosines[:, 0].clip(0, 1), np.float64)
        answers = self.voted(cosines, positions)
        return agreement(self.labels[positions], answers)

    def recall(self, x: Array) -> float:
        """Of the index, on these queries."""
        with one_thread():
            return self.memory.recall(np.asarray(x)[:MEASURED], self.neighbours())

    def voted(self, cosines: Array, positions: Array) -> Labels:
        """(m, k) of the nearest, best first → (m,)."""
        return votes(cosines, self.labels[positions], positions, self.margin, self.vote)

    def stored_bytes(self) -> int:
        """Vectors and labels."""
        return self.memory.nbytes + self.memory.n * 8

    def metadata(self) -> dict[str, Any]:
        """The index's recall, where there is one."""
        return {"recall": [list(pair) for pair in self.memory.recalls]} if self.memory.recalls else {}


def agreement(labels: Labels, answers: Labels) -> npt.NDArray[np.float64]:
    """labels (m, k) of neighbours, answers (m,) → share of the neighbours that bear the answer's label."""
    return np.asarray((labels == answers[:, None]).mean(1), np.float64)


def votes(cosines: Array, labels: Labels, positions: Array, margin: float, rule: str) -> Labels:
    """cosines, labels, positions (m, k) of neighbours, nearest first → (m,) labels, by the rules of `Substrate`."""
    inside = cosines >= cosines[:, :1] - (margin if rule in ("band", "count", "no-recency") else np.inf)
    same = (labels[:, :, None] == labels[:, None, :]) & inside[:, None, :]
    keys = [np.where(same, cosines[:, None, :] if rule == "sum" else 1.0, 0.0).sum(2)]
    if rule in ("band", "no-recency", "sum", "nearest"):
        keys.append(np.where(same, cosines[:, None, :], -np.inf).max(2))
    if rule == "band":
        keys.append(np.where(same, positions[:, None, :], -1).max(2).astype(np.float64))
    left = inside.copy()
    for key in keys:
        among = np.where(left, key, -np.inf)
        left &= among == among.max(1, keepdims=True)
    return np.asarray(labels[np.arange(len(labels)), left.argmax(1)], np.int64)


@dataclass
class SubstrateK1(Substrate):
    """The substrate with the nearest alone."""

    vote: str = "nearest"


@dataclass
class SubstrateSumsim(Substrate):
    """The substrate with the sum of cosines as the vote."""

    vote: str = "sum"


@dataclass
class SubstrateCountOnly(Substrate):
    """The substrate without tie-breaks: of equal counts the nearest neighbour's, which makes it equal to the whole."""

    vote: str = "count"


@dataclass
class SubstrateNoRecency(Substrate):
    """The substrate without the last tie-break; equal to the whole but for equal cosines."""

    vote: str = "no-recency"


@dataclass
class StaticKnn(Substrate):
    """The k nearest of the seed data; corrections are not heard."""

    vote: str = "no-recency"

    def correct(self, x: Array, y: Labels) -> None:
        """Not heard."""
