"""Votes of the nearest samples by cosine: OCRR's substrate, near-future's ACM, and votes that decay with age."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from driftline.curate.core.executor import one_thread
from driftline.curate.core.late import torch
from driftline.eval.engine.deep import CHUNK, Deep, check_model
from driftline.eval.engine.linear import tensor
from driftline.eval.learner import Array, Guide, Labels, Learner, Needs, Task
from driftline.eval.memory.knn_index import Memory, Neighbours, QuerySlices, TrackedQueries, unit
from driftline.eval.training.sgd_learner import Device, place

Vote = Literal["band", "nearest", "sum", "count", "no-recency"]


class Remembering(Learner):
    """Stores every sample with its label; what a class of it writes is how the nearest vote."""

    k: int
    memory: Memory

    def learn(self, x: Array, y: Labels) -> None:
        with one_thread():
            self.memory.learn(np.asarray(x), y, self.neighbours())

    def neighbours(self) -> int:
        """Number of neighbours that are searched for."""
        return self.k

    def stored_bytes(self) -> int:
        """Vectors and labels."""
        return self.memory.nbytes

    def metadata(self) -> dict[str, Any]:
        """Recall of the index at several sizes, if one is used."""
        return {"recall": [list(pair) for pair in self.memory.recalls]} if self.memory.recalls else {}


@dataclass
class Substrate(Remembering):
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
        self.memory = Memory(int(np.prod(task.x_shape)), self.exact_below, kind=self.index)
        self.tracked: TrackedQueries | None = None

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
        labels = self.memory.labels[positions]
        answers = votes(cosines, labels, positions, self.margin, self.vote)
        if self.vote == "nearest":
            return answers, np.asarray(cosines[:, 0].clip(0, 1), np.float64)
        return answers, agreement(labels, answers)

    def recall(self, x: Array) -> float:
        """Recall of the index on these queries (OCRR's verify_hnsw_recall)."""
        with one_thread():
            return self.memory.recall(np.asarray(x), self.neighbours())


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


def _ablation(name: str, vote: str, use: str, summary: str) -> Any:
    """The substrate with another vote."""
    kind: Any = dataclass(type(name, (Substrate,), {"__annotations__": {"vote": Vote}, "vote": vote}))
    kind.__doc__, kind.__module__ = summary, __name__
    kind.guide = replace(Substrate.guide, use=f"ablation: {use}")
    return kind


ABLATIONS = (
    ("SubstrateK1", "nearest", "one neighbour", "The substrate with the nearest neighbour only."),
    ("SubstrateSumsim", "sum", "sum of cosines", "The substrate with the sum of cosines as the vote."),
    ("SubstrateCountOnly", "count", "no tie-breaks",
     "The substrate without tie-breaks: of equal counts that of the nearest neighbour, with the same answers."),
    ("SubstrateNoRecency", "no-recency", "old samples win ties",
     "The substrate without the last tie-break; its answers differ only at equal cosines."),
)  # fmt: skip
SubstrateK1, SubstrateSumsim, SubstrateCountOnly, SubstrateNoRecency = (_ablation(*row) for row in ABLATIONS)


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


@dataclass
class BoundedReservoir(Learner):
    """`substrate` on a memory of fixed size: a uniform sample of everything seen [Vitter's algorithm R]."""

    capacity: PositiveInt = 1000
    """samples in memory"""
    k: PositiveInt = 5
    """neighbours"""
    margin: NonNegativeFloat = 0.05
    """neighbours vote if their cosine is at most this much below the nearest one's"""

    guide = Guide("nearest neighbours", "OCRR", "n M D", "neighbours in a memory of fixed size")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        self.rng, self.seen = rng, 0
        self.x = np.zeros((self.capacity, int(np.prod(task.x_shape))), np.float32)
        self.y = np.zeros(self.capacity, np.int64)
        self.order = np.zeros(self.capacity, np.int64)  # position of each in the stream
        self.slices: QuerySlices | None = None

    def slot(self) -> int | None:
        """Place of the next sample; None: it is not kept."""
        if self.seen < self.capacity:
            return self.seen
        drawn = int(self.rng.integers(0, self.seen + 1))
        return drawn if drawn < self.capacity else None

    def learn(self, x: Array, y: Labels) -> None:
        """Offer the samples to the memory, one after the other."""
        with one_thread():  # NumPy's product would wake all cores
            for row, label in zip(unit(x), np.asarray(y).tolist(), strict=True):
                place = self.slot()
                if place is not None:
                    self.x[place], self.y[place], self.order[place] = row, label, self.seen
                    if self.slices is not None:
                        self.cosines[:, place] = torch.from_numpy(self.queries).mv(torch.from_numpy(row)).numpy()
                self.seen += 1

    def prepare(self, x: Sequence[Array]) -> None:
        """Compute their cosines with the memory once; a sample that enters changes one column."""
        self.slices = QuerySlices(x)
        self.queries = self.slices.vectors()
        with one_thread():
            self.cosines = (torch.from_numpy(self.queries) @ torch.from_numpy(self.x).T).numpy()

    def predict(self, x: Array) -> Labels | tuple[Labels, Array]:
        """The vote, 0 before anything was learned, and the share of the neighbours that have the answer's label."""
        if not self.seen:
            return np.zeros(len(x), np.int64), np.zeros(len(x))
        cosines, places = self.nearest(x)
        answers = votes(cosines, self.y[places], self.order[places], self.margin, "band")
        return answers, agreement(self.y[places], answers)

    def nearest(self, x: Array) -> tuple[Array, Array]:
        """Cosines and places (m, k) of the nearest samples in memory, best first."""
        n = min(self.seen, self.capacity)
        with one_thread():
            rows = None if self.slices is None else self.slices.rows_of(x)
            if rows is None:
                cosines = torch.from_numpy(unit(x)) @ torch.from_numpy(self.x[:n]).T
            else:
                cosines = torch.from_numpy(self.cosines[rows, :n])
            best, places = (t.numpy() for t in cosines.topk(min(self.k, n), sorted=True))
        return best, places

    def stored_bytes(self) -> int:
        """Samples and labels in memory."""
        n = min(self.seen, self.capacity)
        return int(self.x[:n].nbytes + self.y[:n].nbytes)


@dataclass
class BoundedFifo(BoundedReservoir):
    """`substrate` on the newest samples; seed data in the order of classes leave few classes in it."""

    guide = Guide("nearest neighbours", "OCRR", "n M D", "as above, the newest samples")

    def slot(self) -> int | None:
        return self.seen % self.capacity


@dataclass
class Acm(Remembering):
    """Votes of the k nearest samples; ties go to the class of the nearest, so that k = 2 answers exactly as k = 1."""

    k: PositiveInt = 2
    """neighbours"""
    exact_below: NonNegativeInt = 1_000_000
    """samples up to which the search is exact; above, a faiss index is used and its recall is measured"""
    limit_mb: NonNegativeInt = 4096
    """main memory for samples; the rest is kept in files"""
    net: str = ""
    """a timm model whose features of images are compared, as resnet50 in the paper; it is never trained; empty: the
    samples themselves"""
    weights: str = ""
    """checkpoint of the model, or a tag of timm such as tv_in1k, instead of random weights"""
    device: Device = "cpu"
    """cpu, cuda or auto; of the model"""

    reaches = MappingProxyType({"weights": "a file"})
    guide = Guide("nearest neighbours", "near-future accuracy, sec. 5", "n N D", "all samples may be stored")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """Start with an empty memory. Raises IncompatibleStream for samples that are no images if `net` is given."""
        self.model, width = None, int(np.prod(task.x_shape))
        if self.net:
            check_model(self.net, task.x_shape)
            self.model = Deep.new(self.net, task.n_classes, (), rng, place(self.device), False, weights=self.weights)
            width = int(self.model.params[-2].shape[1])
        self.memory = Memory(width, self.exact_below, self.limit_mb)

    def compared(self, x: Array) -> Array:
        """What is compared: the samples, or the model's features of them."""
        if self.model is None:
            return np.asarray(x)
        self.model.module.eval()
        with torch.inference_mode():
            images = (tensor(np.asarray(x[low : low + CHUNK]), place(self.device)) for low in range(0, len(x), CHUNK))
            return np.concatenate([self.model.features(part).float().cpu().numpy() for part in images])

    def learn(self, x: Array, y: Labels) -> None:
        with one_thread():
            self.memory.learn(self.compared(x), y, self.k)

    def predict(self, x: Array) -> Labels | tuple[Labels, Array]:
        """The vote, 0 before anything was learned, and the share of the neighbours that have the answer's label."""
        if not self.memory.n:
            return np.zeros(len(x), np.int64), np.zeros(len(x))
        with one_thread():
            cosines, positions = self.memory.search(self.compared(x), self.k)
        labels = self.memory.labels[positions]
        answers = votes(cosines, labels, positions, np.inf, "count")
        return answers, agreement(labels, answers)

    def stored_bytes(self) -> int:
        """Vectors, labels and the model."""
        return self.memory.nbytes + (0 if self.model is None else self.model.nbytes)


@dataclass
class Knn(Remembering):
    """The k nearest by cosine vote with exp(cosine / temperature) [Wu et al. 2018, sec. 3.4] times 2^(-age / h).

    `acm` and `substrate` are the rules of two papers, without decay.
    """

    k: PositiveInt = 20
    """neighbours"""
    temperature: PositiveFloat = 0.07
    """of the votes [Wu et al. 2018: 0.07]"""
    half_life: NonNegativeFloat = 0.0
    """samples after which the vote of a sample has halved; 0: age does not count"""
    exact_below: NonNegativeInt = 1_000_000
    """samples up to which the search is exact; above, a faiss index is used"""
    device: Device = "cpu"
    """cpu, cuda or auto; of the products, which change no answer"""

    guide = Guide("nearest neighbours", "Wu et al. 2018", "n N D", "neighbours whose votes decay with age")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        self.task = task
        self.memory = Memory(int(np.prod(task.x_shape)), self.exact_below, device=place(self.device))

    def predict(self, x: Array) -> Labels | tuple[Labels, Array]:
        """The class with most votes, 0 before anything was learned, and its share of the votes."""
        if not self.memory.n:
            return np.zeros(len(x), np.int64), np.full(len(x), 1 / self.task.n_classes)
        with one_thread():
            cosines, positions = self.memory.search(x, self.k)
        labels = self.memory.labels[positions]
        power = cosines.astype(np.float64) / self.temperature
        if self.half_life:
            power -= (self.memory.n - 1 - positions) * np.log(2) / self.half_life
        weights = np.exp(power - power.max(1, keepdims=True))
        shares = np.zeros((len(x), int(max(self.task.n_classes, labels.max() + 1))))
        np.add.at(shares, (np.arange(len(x))[:, None], labels), weights)
        return np.asarray(shares.argmax(1), np.int64), shares.max(1) / shares.sum(1)
