"""What learners on time-ordered streams share: a sampler over the past, a budget of updates, one head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from curate.core.errors import BadConfig
from curate.core.torch_threads import one_thread
from eval.engine.deep import Deep
from eval.engine.linear import LinearSettings, errors, move, tensor
from eval.engine.linear import predict as classify
from eval.engine.wide import Cosine, Wide
from eval.history import Past
from eval.learner import Array, Labels, Task, bytes_of
from eval.memory.samplers import SAMPLERS, Sampler
from eval.training.sgd_learner import NetLearner
from stream_builder.stream import Split

BATCH = 64  # samples of an update where the protocol says nothing


@dataclass
class OnlineLearner(NetLearner):
    """SGD on batches that a sampler draws from the past, constant learning rate [near-future accuracy, sec. 5].

    sampler: fifo, uniform, mixed, balanced; memory: samples it may keep, 0 for all; alpha: of the biased reservoir that
    keeps them. batch: samples of an update, 0 for the stream's own batch. net: of a model of timm on images a head-only
    learner trains the classifier alone. epochs: passes over a batch that comes without a budget, as in
    the CLEAR protocols.
    """

    sampler: str = "uniform"
    memory: int = 0
    alpha: float = 1.0
    momentum: float = 0.0
    weight_decay: float = 1e-4
    batch: int = 0
    epochs: int = 1
    head_only = False
    cosine = False

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """A new head, nothing past."""
        if self.cosine and self.net != "linear":
            raise BadConfig(f"net is {self.net!r}.", "Expected linear: angles are of one layer.")
        super().begin(task, rng)
        self.size = self.batch or task.batch or BATCH
        self.draws: Sampler = SAMPLERS[self.sampler](self.rng, self.memory, self.alpha)
        self.own: list[tuple[Array, Labels]] = []  # what came without a past of its own
        self.stored, self.sample_bytes = 0, 0

    def reset(self) -> None:
        """New random weights."""
        width, classes = int(np.prod(self.task.x_shape)), self.task.n_classes
        self.wide: Any = None
        if self.net != "linear":
            super().reset()
            if isinstance(self.head, Deep):
                self.head.frozen = self.head_only
        elif self.cosine:
            self.wide = Cosine.new(classes, width, self.rng, self.place)
        else:
            half = self.precision == "bfloat16"
            self.wide = Wide.new(classes, width, self.rng, self.place, self.momentum > 0, half)

    def learn_from(self, past: Past) -> None:
        """As many updates as the budget allows, on what the sampler draws."""
        self.draws.grow(past)
        if updates := self.allowed():
            self._train(past, updates)
        self.stored = self.draws.kept(past)

    def learn(self, x: Array, y: Labels) -> None:
        """A batch without a past: it is kept, and learned in pieces of `batch`, `epochs` updates for each."""
        self.own.append((np.asarray(x), np.asarray(y, np.int64)))
        past = Past.of([Split(*one) for one in self.own])
        seen = len(past.labels) - len(y)
        for start in range(seen, len(past.labels), self.size):
            here = past.at(start, min(start + self.size, len(past.labels)))
            self.draws.grow(here)
            self._train(here, self.epochs)

    def correct(self, x: Array, y: Labels) -> None:
        """A batch of one."""
        self.learn(x, y)

    def _train(self, past: Past, updates: int) -> None:
        positions = self.draws.draw(past, self.size * updates)
        batches = np.split(positions, range(self.size, len(positions), self.size))
        if len(positions) < self.size * updates:  # less is kept than all updates ask: each draws for itself
            batches = [self.draws.draw(past, self.size) for _ in range(updates)]
        new = np.unique(past.labels[past.start : past.seen])
        if not self.sample_bytes:
            x, _ = past.newest()
            self.sample_bytes = x[:1].nbytes
            self.measure(x)
        with one_thread():
            for here in batches:
                self._update(*past.take(here), here >= past.start, new)
        self.gradient_steps += updates

    def _update(self, x: Array, y: Labels, incoming: Any, new: Labels) -> None:
        """One update. incoming: (B,) bool, which samples are of the newest batch. new: its classes."""
        import torch
        from torch.nn.functional import cross_entropy

        masked = self.masked(incoming, new)
        lr = self.lr or 1.0
        with torch.no_grad():
            labels = torch.from_numpy(np.array(y, np.int64)).to(self.place)
            leave = None if masked is None else torch.from_numpy(masked).to(self.place)
            data = tensor(self.inputs(x), self.place)
            if self.wide is not None:
                self.wide.update(data, labels, lr, self.momentum, self.weight_decay, leave)
                return
            net, settings = self.head, LinearSettings(lr=lr, momentum=self.momentum, weight_decay=self.weight_decay)

            def known(scores: Any, of: slice) -> Any:
                return scores if leave is None else scores.masked_fill(leave[of], -1e9)

            def loss(scores: Any, of: slice) -> Any:
                return cross_entropy(known(scores, of), labels[of], reduction="sum") / len(labels)

            if isinstance(net, Deep):
                move(net, net.gradient(net.view(data), loss), lr, settings)
            else:
                off = errors(known(net.scores(data), slice(None)), labels).div_(len(labels))
                move(net, net.pulled(data, off), lr, settings)

    def masked(self, incoming: Any, new: Labels) -> Any:
        """(B, C) bool, the classes that a sample's loss leaves out; None: none."""
        return None

    def predict(self, x: Array) -> Labels:
        """Class of the highest score, in blocks of four million scores."""
        import torch

        if self.wide is None:
            return classify(self.head, self.inputs(x))
        rows = max(1, 2**22 // self.task.n_classes)
        found = [np.zeros(0, np.int64)]
        with one_thread(), torch.inference_mode():
            for low in range(0, len(x), rows):
                data = tensor(self.inputs(x[low : low + rows]), self.place)
                found.append(self.wide.scores(data).argmax(1).cpu().numpy())
        return np.concatenate(found)

    def stored_bytes(self) -> int:
        """Weights, and the samples in storage: of an unlimited one all that came, though the stream holds them."""
        kept = sum(x.nbytes + y.nbytes for x, y in self.own) or self.stored * (self.sample_bytes + 8)
        return kept + bytes_of(self.head if self.wide is None else self.wide)
