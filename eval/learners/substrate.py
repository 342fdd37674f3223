"""The substrate: an append-only memory of all samples and corrections, and a vote of the nearest [OCRR]."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from driftline.curate.core.executor import one_thread
from driftline.eval.learner import Array, Guide, Labels, Learner, Needs, Task
from driftline.eval.memory.knn_index import MEASURED, Memory, Neighbours, TrackedQueries

Vote = Literal["band", "nearest", "sum", "count", "no-recency"]


@dataclass
class Substrate(Learner):
    """Stores every sample; predicts by a vote of the k nearest, by cosine, that are within a margin of the nearest.

    The class with most votes wins; ties: the class of the nearest sample, then that of the newest sample.
    """

    k: PositiveInt = 5
    """neighbours"""
    margin: NonNegativeFloat = 0.05
    """neighbours vote if their cosine is at most this much below the nearest one's"""
    vote: Vote = "band"
    """`band` is the rule above; the ablations are `nearest` (k = 1), `sum` (of the k cosines), `count` (most votes,
    then the nearest neighbour) and `no-recency` (without the last tie-break)"""
    exact_below: NonNegativeInt = 1_000_000
    """samples up to which the search is exact; above, a faiss index is used, and its recall is reported with every
    score"""
    index: Literal["hnsw", "ivf", "brute"] = "hnsw"
    """kind of the index; `brute`: none at any size (OCRR's force_brute)"""

    guide = Guide("nearest neighbours", "OCRR", "n N D", "single corrections must count at once")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        self.task, self.rng = task, rng
        self.memory = Memory(int(np.prod(task.x_shape)), self.exact_below, kind=self.index)
        self.labels = np.zeros(1024, np.int64)
        self.tracked: TrackedQueries | None = None

    def learn(self, x: Array, y: Labels) -> None:
        n = self.memory.n
        while n + len(y) > len(self.labels):
            self.labels = np.concatenate([self.labels, np.zeros_like(self.labels)])
        self.labels[n : n + len(y)] = y
        with one_thread():
            # Before they are added: they would find themselves.
            self.memory.measure(np.asarray(x)[:MEASURED], self.neighbours())
            self.memory.add(x)

    def prepare(self, x: Sequence[Array]) -> None:
        """Find their nearest samples once; later only new samples are compared with them."""
        with one_thread():
            self.tracked = TrackedQueries(self.memory, x, self.neighbours())

    def unused(self, task: Task) -> dict[str, str]:
        """What the vote has no use for, and a limit of exact search where all search is exact."""
        idle = {"exact_below": "index is brute: every search is exact"} if self.index == "brute" else {}
        if self.vote == "nearest":
            return idle | dict.fromkeys(("k", "margin"), "the nearest sample alone votes")
        return idle | ({"margin": "all k neighbours vote"} if self.vote == "sum" else {})

    def neighbours(self) -> int:
        """Number of neighbours that are searched for."""
        return 1 if self.vote == "nearest" else self.k

    def nearest(self, x: Array) -> Neighbours:
        """Cosines and positions (m, k), best first: precomputed ones if `prepare` has seen x and no index is used."""
        neighbours = None if self.tracked is None or self.memory.index is not None else self.tracked.nearest(x)
        if neighbours is not None:
            return neighbours
        with one_thread():
            return self.memory.search(np.asarray(x), self.neighbours())

    def predict(self, x: Array) -> Labels | tuple[Labels, Array]:
        """The vote, 0 before anything was learned; the share of the neighbours that have the answer's label; with one
        neighbour, its cosine."""
        if not self.memory.n:
            return np.zeros(len(x), np.int64), np.zeros(len(x))
        cosines, positions = self.nearest(x)
        answers = self.voted(cosines, positions)
        if self.vote == "nearest":
            return answers, np.asarray(cosines[:, 0].clip(0, 1), np.float64)
        return answers, agreement(self.labels[positions], answers)

    def recall(self, x: Array) -> float:
        """Recall of the index on these queries (OCRR's verify_hnsw_recall)."""
        with one_thread():
            return self.memory.recall(np.asarray(x)[:MEASURED], self.neighbours())

    def voted(self, cosines: Array, positions: Array) -> Labels:
        """Cosines and positions (m, k), best first → labels (m,)."""
        return votes(cosines, self.labels[positions], positions, self.margin, self.vote)

    def stored_bytes(self) -> int:
        """Vectors and labels."""
        return self.memory.nbytes + self.memory.n * 8

    def metadata(self) -> dict[str, Any]:
        """Recall of the index at several sizes, if one is used."""
        return {"recall": [list(pair) for pair in self.memory.recalls]} if self.memory.recalls else {}


def agreement(labels: Labels, answers: Labels) -> npt.NDArray[np.float64]:
    """labels (m, k) of neighbours, answers (m,) → share of the neighbours that have the answer's label."""
    return np.asarray((labels == answers[:, None]).mean(1), np.float64)


def votes(cosines: Array, labels: Labels, positions: Array, margin: float, rule: Vote) -> Labels:
    """cosines, labels, positions (m, k) of neighbours, nearest first → (m,) labels, by the rules of `Substrate`."""
    inside = cosines >= cosines[:, :1] - (margin if rule in ("band", "count", "no-recency") else np.inf)
    if not (inside & (labels != labels[:, :1])).any():  # most single queries: all voters agree
        return np.asarray(labels[:, 0], np.int64)
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
    """The substrate with the nearest neighbour only."""

    vote: Vote = "nearest"

    guide = Guide("nearest neighbours", "OCRR", "n N D", "ablation: one neighbour")


@dataclass
class SubstrateSumsim(Substrate):
    """The substrate with the sum of cosines as the vote."""

    vote: Vote = "sum"

    guide = Guide("nearest neighbours", "OCRR", "n N D", "ablation: sum of cosines")


@dataclass
class SubstrateCountOnly(Substrate):
    """The substrate without tie-breaks; among equal counts the nearest neighbour's class, which gives the same
    answers."""

    vote: Vote = "count"

    guide = Guide("nearest neighbours", "OCRR", "n N D", "ablation: no tie-breaks")


@dataclass
class SubstrateNoRecency(Substrate):
    """The substrate without the last tie-break; its answers differ only at equal cosines."""

    vote: Vote = "no-recency"

    guide = Guide("nearest neighbours", "OCRR", "n N D", "ablation: old samples win ties")


@dataclass
class StaticKnn(Substrate):
    """The k nearest of the first step or the seed data: ignores later steps and corrections."""

    vote: Vote = "no-recency"

    needs = Needs(first_step="its memory holds nothing else")

    def learn(self, x: Array, y: Labels) -> None:
        """Store the samples at the first call; ignore later ones."""
        if not self.memory.n:
            super().learn(x, y)

    guide = Guide("nearest neighbours", "OCRR", "n N D", "what corrections add to neighbours")

    def correct(self, x: Array, y: Labels) -> None:
        """Ignored."""
