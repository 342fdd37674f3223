"""OCRR as the reference formulates it, for `benchmarks/ocrr.py`: one query after the other, gradients by autograd, an
entry as JSON and its SHA-256 [spec of OCRR, sections 2 and 3]. Written from the description, not a copy of its code.
"""

import copy
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

K, MARGIN, EVERY = 5, 0.05, 50
Vectors, Labels = npt.NDArray[np.float32], npt.NDArray[np.int64]


@dataclass
class Voter:
    """Neighbours of one query vote: a band below the most similar one, by count, similarity, and age."""

    kind: str = "full"  # or k1, sumsim, count, frozen, fifo, reservoir
    room: int = 20_000
    vectors: Any = None
    labels: list[int] = field(default_factory=list)
    before: str = "0" * 64
    seen: int = 0
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def add(self, x: Vectors, label: int) -> None:
        """One sample; unbounded kinds write it into the chain of entries first."""
        if self.vectors is None:
            self.vectors = np.empty((self.room, len(x)), np.float32)
        place = len(self.labels)
        self.seen += 1
        if self.kind in ("full", "k1", "sumsim", "count"):
            entry = {"id": str(place), "t_created": 0.0, "embedding": x.tolist(), "text": "", "tags": {"label": label},
                     "contradicts": [], "prev_hash": self.before}  # fmt: skip
            self.before = hashlib.sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()
        elif place == self.room:
            place = (self.seen - 1) % self.room if self.kind == "fifo" else int(self.rng.integers(self.seen))
            if place >= self.room:
                return
        self.vectors[place] = x
        self.labels[place : place + 1] = [label]

    def nearest(self, x: Vectors) -> list[tuple[float, int]]:
        """Similarity and place of the nearest, the most similar first."""
        similar = self.vectors[: len(self.labels)] @ x
        top = np.argpartition(-similar, K)[:K]
        return sorted(((float(similar[i]), int(i)) for i in top), key=lambda pair: -pair[0])

    def predict(self, x: Vectors) -> int:
        """The label of one query."""
        found = self.nearest(x)[: 1 if self.kind == "k1" else K]
        votes: dict[int, list[float]] = {}
        for similarity, place in found:
            if self.kind == "sumsim" or similarity >= found[0][0] - MARGIN:
                votes.setdefault(self.labels[place], []).append(similarity)
        return max(votes, key=lambda c: sum(votes[c]) if self.kind == "sumsim" else (len(votes[c]), max(votes[c])))

    def correct(self, x: Vectors, label: int) -> None:
        """A correction is a sample more, unless the memory is frozen."""
        if self.kind != "frozen":
            self.add(x, label)


class Network:
    """A linear head on vectors, one query and one correction at a time."""

    def __init__(self, kind: str, x: Vectors, y: Labels, classes: int) -> None:
        """Fitted on the seed set: AdamW 1e-2, decay 1e-4, 30 epochs, batches of 256."""
        torch.manual_seed(0)
        self.kind, self.net = kind, torch.nn.Linear(x.shape[1], classes)
        data, target = torch.from_numpy(x), torch.from_numpy(y)
        optimiser = torch.optim.AdamW(self.net.parameters(), lr=1e-2, weight_decay=1e-4)
        for _ in range(30):
            for part in torch.randperm(len(data)).split(256):
                self.step(optimiser, functional.cross_entropy(self.net(data[part]), target[part]))
        self.optimiser = torch.optim.SGD(self.net.parameters(), lr=0.05)
        self.teacher = copy.deepcopy(self.net)
        self.fixed = [p.detach().clone() for p in self.net.parameters()]
        chosen = torch.randperm(len(data))[:2000]
        self.memory = data[chosen[:1000]], target[chosen[:1000]]
        self.fisher = [torch.zeros_like(p) for p in self.fixed]
        for i in chosen if kind == "ewc" else []:
            scores = self.net(data[i : i + 1])
            grads = torch.autograd.grad(functional.cross_entropy(scores, scores.argmax(1)), list(self.net.parameters()))
            self.fisher = [f + g**2 / len(chosen) for f, g in zip(self.fisher, grads, strict=True)]

    @staticmethod
    def step(optimiser: torch.optim.Optimizer, loss: torch.Tensor) -> None:
        """One update."""
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    @torch.no_grad()
    def scores(self, x: Vectors) -> torch.Tensor:
        """(1, C) of one query."""
        scores: torch.Tensor = self.net(torch.from_numpy(x)[None])
        return scores

    def predict(self, x: Vectors) -> int:
        """The label of one query."""
        return int(self.scores(x).argmax())

    def correct(self, x: Vectors, label: int) -> None:
        """One step of SGD on one sample, with the addition of its kind."""
        if self.kind == "static":
            return
        one, params = torch.from_numpy(x)[None], list(self.net.parameters())
        scores = self.net(one)
        loss = functional.cross_entropy(scores, torch.tensor([label]))
        if self.kind == "ewc":
            drift = zip(self.fisher, params, self.fixed, strict=True)
            loss = loss + 500 * sum(((f * (p - q) ** 2).sum() for f, p, q in drift), torch.zeros(()))
        if self.kind == "lwf":
            soft = functional.softmax(self.teacher(one).detach() / 2, 1)
            loss = loss + 4 * functional.kl_div(functional.log_softmax(scores / 2, 1), soft, reduction="batchmean")
        if self.kind != "agem":
            return self.step(self.optimiser, loss)
        grads = torch.autograd.grad(loss, params)
        rows = torch.randint(1000, (64,))
        kept = torch.autograd.grad(
            functional.cross_entropy(self.net(self.memory[0][rows]), self.memory[1][rows]), params
        )
        dot = sum(((g * r).sum() for g, r in zip(grads, kept, strict=True)), torch.zeros(()))
        share = dot / sum(((r * r).sum() for r in kept), torch.zeros(())) if dot < 0 else torch.zeros(())
        for p, g, r in zip(params, grads, kept, strict=True):
            p.grad = g - share * r
        self.optimiser.step()


class Mixed(Voter):
    """knn_lm: half softmax of the similarities of five at a temperature of .1, half the frozen head."""

    head: Network
    classes: int = 0

    def predict(self, x: Vectors) -> int:
        """The label of one query."""
        found = self.nearest(x)
        weights = np.exp((np.array([similarity for similarity, _ in found]) - found[0][0]) / 0.1)
        both = np.zeros(self.classes)
        frozen = functional.softmax(self.head.scores(x)[0], 0).numpy() / 2
        both[: len(frozen)] = frozen
        for weight, (_, place) in zip(weights / weights.sum(), found, strict=True):
            both[self.labels[place]] += weight / 2
        return int(both.argmax())


def system(name: str, x: Vectors, y: Labels, known: int, classes: int) -> Voter | Network:
    """A system of the reference that has seen the seed set. known: classes of it."""
    heads = {"static_linear": "static", "online_linear": "online", "ewc": "ewc", "a_gem": "agem", "lwf": "lwf"}
    if name in heads:
        return Network(heads[name], x, y, known if name == "static_linear" else classes)
    if name.startswith("bounded"):
        *_, kind, room = name.split("_")
        made = Voter(kind, int(room))
    elif name == "knn_lm":
        made = Mixed()
        made.head, made.classes = Network("static", x, y, known), classes
    else:
        made = Voter({"substrate_k1": "k1", "substrate_sumsim": "sumsim", "static_knn": "frozen"}.get(name, "full"))
    for row, label in zip(x, y, strict=True):
        made.add(row, int(label))
    return made


def run(
    name: str, found: dict[str, Any], split: dict[str, Any], seconds: Callable[[Callable[[], object]], float]
) -> Any:
    """CPU seconds of one system, every error corrected, and its last accuracies on new and known classes.

    found: arrays train_x, train_y, test_x, test_y, vectors of unit length. split: rows of the reference's seed."""
    names = [str(label) for label in found["labels"]]
    held = [names.index(label) for label in split["held_out"]]
    order = [c for c in range(len(names)) if c not in held] + held  # known classes first: the static head has only them
    new = np.empty(len(names), np.int64)
    new[order] = range(len(names))
    train_y, test_y = new[found["train_y"]], new[found["test_y"]]
    known = train_y < len(names) - len(held)
    ends: list[float] = []

    def work() -> None:
        made = system(name, found["train_x"][known], train_y[known], len(names) - len(held), len(names))
        stream = split["stream_train_idx"]
        for at, row in enumerate([*stream, None]):
            if at % EVERY == 0 or row is None:
                sides = (split["eval_novel_test_idx"], split["eval_orig_test_idx"])
                ends[:] = [float(np.mean([made.predict(found["test_x"][i]) == test_y[i] for i in s])) for s in sides]
            if row is not None and made.predict(found["train_x"][row]) != train_y[row]:
                made.correct(found["train_x"][row], int(train_y[row]))

    return seconds(work), ends
