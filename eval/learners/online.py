"""Heads and networks that learn from a stream, batch after batch or sample after sample: their base has a sampler of
past samples, a budget of updates and one head."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from driftline.curate.core.errors import IncompatibleStream
from driftline.curate.core.executor import one_thread
from driftline.curate.core.late import torch
from driftline.eval.engine.deep import Deep
from driftline.eval.engine.heads import Cosine, Wide
from driftline.eval.engine.linear import LinearSettings, errors, move, net_scores, tensor
from driftline.eval.history import History, Past
from driftline.eval.learner import NO_ANSWER, Array, Guide, Labels, Learner, Task, bytes_of
from driftline.eval.memory.knn_index import unit
from driftline.eval.memory.samplers import SAMPLERS, Fifo, Sampler, SamplerName
from driftline.eval.training.sgd_learner import NetworkLearner
from driftline.stream_builder.stream import Split

BATCH = 64  # samples per update if the protocol has no batch size


def chosen_rate(learner: Learner) -> dict[str, Any]:
    """Of an online head without a learning rate: that the protocol chooses one, since no paper has one for its samples;
    {} for other learners."""
    return {"lr": "auto"} if isinstance(learner, OnlineLearner) and learner.lr is None else {}


@dataclass
class OnlineLearner(NetworkLearner):
    """SGD on batches that a sampler draws from the past, constant learning rate [near-future accuracy, sec. 5]."""

    sampler: SamplerName = "uniform"
    """which past samples an update uses"""
    memory: NonNegativeInt = 0
    """samples in memory; 0: all"""
    alpha: NonNegativeFloat = 1.0
    """α of the biased reservoir that keeps them"""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: NonNegativeFloat = 1e-4
    batch: NonNegativeInt = 0
    """samples per update; 0: the stream's batch; an update on more samples costs more of the budget"""
    epochs: PositiveInt = 1
    """passes over a batch that comes without a budget, as in the CLEAR protocols"""

    head_only: ClassVar[bool] = False
    """with a timm model, trains the classifier only"""

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """Start with a new head and an empty memory. Raises IncompatibleStream for angles on the outputs of an MLP."""
        if self.cosine and self.net == "mlp":
            raise IncompatibleStream("net is 'mlp'.", "Expected linear or a timm model.")
        super().begin(task, rng)
        self.size = self.batch or task.batch or BATCH
        self.cost = self.size / task.batch if task.batch else 1.0
        self.replay: Sampler = SAMPLERS.resolve(self.sampler)(self.rng, self.memory, self.alpha)
        self.batches: list[tuple[Array, Labels]] = []  # batches that came without a stream
        self.stored, self.sample_bytes = 0, 0

    def reset(self) -> None:
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

    def unused(self, task: Task) -> dict[str, str]:
        """Epochs under a budget of updates; a memory that the sampler has no use for, and α of an unlimited one."""
        kind = SAMPLERS.resolve(self.sampler)
        idle = {n: f"sampler {self.sampler} has no use for it" for n in ("memory", "alpha") if n not in kind.uses}
        return task.budgeted("epochs") | ({} if self.memory else {"alpha": "memory is 0: all"}) | idle

    def learn_from(self, past: Past) -> None:
        """As many updates as the budget allows, on samples that the sampler draws."""
        self.replay.grow(past)
        if updates := self.budget.take(self.cost):
            self._train(past, updates)
        self.stored = self.replay.stored(past)

    def learn(self, x: Array, y: Labels) -> None:
        """Store a batch that comes without a stream, and learn it in pieces of `batch`, with `epochs` updates each."""
        self.batches.append((np.asarray(x), np.asarray(y, np.int64)))
        history = History([Split(*pair) for pair in self.batches])
        for start in range(len(history) - len(y), len(history), self.size):
            newest = history.past(start, min(start + self.size, len(history)))
            self.replay.grow(newest)
            self._train(newest, self.epochs)

    def _train(self, past: Past, updates: int) -> None:
        positions = self.replay.draw(past, self.size * updates)
        batches = np.split(positions, range(self.size, len(positions), self.size))
        if len(positions) < self.size * updates:  # fewer samples than all updates need: each draws its own
            batches = [self.replay.draw(past, self.size) for _ in range(updates)]
        new = np.unique(past.y(np.arange(past.start, past.seen)))
        if not self.sample_bytes:
            x, _ = past.newest()
            self.sample_bytes = x[:1].nbytes
            self.measure(x)
        with one_thread():
            for rows in batches:
                self._update(*past.take(rows), rows >= past.start, new)
        self.gradient_steps += updates

    def _update(self, x: Array, y: Labels, incoming: Any, new: Labels) -> None:
        """One update. incoming: (B,) bool, True for samples of the newest batch. new: its classes."""
        masked = self.masked(incoming, new)
        lr = self.rate
        with torch.no_grad():
            labels = torch.from_numpy(np.array(y, np.int64)).to(self.place)
            leave = None if masked is None else torch.from_numpy(masked).to(self.place)
            data = tensor(self.inputs(x), self.place)
            if self.wide is not None:
                self.wide.update(data, labels, lr, self.momentum, self.weight_decay, leave)
                return
            net, settings = self.head, LinearSettings(lr=lr, momentum=self.momentum, weight_decay=self.weight_decay)

            def of_seen(scores: Any) -> Any:
                return scores if leave is None else scores.masked_fill(leave, -1e9)

            def loss(scores: Any) -> Any:
                return torch.nn.functional.cross_entropy(of_seen(scores), labels, reduction="sum") / len(labels)

            if isinstance(net, Deep):
                move(net, net.gradient(net.view(data), loss), lr, settings)
            else:
                off = errors(of_seen(net.scores(data)), labels).div_(len(labels))
                move(net, net.pulled(data, off), lr, settings)

    def masked(self, incoming: Any, new: Labels) -> Any:
        """(B, C) bool, classes that are excluded from a sample's loss; None: none."""
        return None

    def scores(self, x: Array) -> Array:
        """(N, C), in blocks of four million."""
        if self.wide is None:
            return net_scores(self.head, self.inputs(x))
        queued = isinstance(self.wide, Wide) and isinstance(self.replay, Fifo)  # the first samples may be learned next
        rows = range(min(len(x), self.size) if queued else 0, len(x), max(1, 2**22 // self.task.n_classes))
        parts = [np.zeros((0, self.task.n_classes), np.float32)]
        with one_thread(), torch.no_grad():
            for low, high in pairwise(sorted({0, *rows, len(x)})):
                more = {"learned_next": True} if queued and not low else {}
                scores = self.wide.scores(tensor(self.inputs(x[low:high]), self.place), **more)
                parts.append(scores.float().cpu().numpy())
        return np.concatenate(parts[1:] or parts)

    def stored_bytes(self) -> int:
        """Weights and stored samples; of an unlimited memory all samples so far, although the stream holds them."""
        bytes_stored = sum(x.nbytes + y.nbytes for x, y in self.batches) or self.stored * (self.sample_bytes + 8)
        return bytes_stored + sum(
            bytes_of(part) for part in (self.wide, getattr(self, "head", None)) if part is not None
        )


@dataclass
class ErOnline(OnlineLearner):
    """Cross-entropy on past samples; on images trains the whole network; on features it is FC-Only [sec. 5, ER]."""

    guide = Guide("online", "near-future accuracy, sec. 5", "n D C", "replay on a stream, with a network")


@dataclass
class FcOnly(OnlineLearner):
    """Trains the classifier only, on samples chosen uniformly [near-future accuracy, sec. 5, FC-Only]."""

    head_only = True
    guide = Guide("online", "near-future accuracy, sec. 5", "n D C", "the baseline on fast streams")


@dataclass
class Ace(OnlineLearner):
    """The loss of new samples covers the classes of the newest batch only; that of older samples covers all classes."""

    guide = Guide("online", "Caccia et al. 2022", "n D C", "new classes displace old ones; this is ER-ACE")

    def masked(self, incoming: Any, new: Labels) -> Any:
        """For new samples every class that is not in the newest batch."""
        outside = np.ones(self.task.n_classes, bool)
        outside[new] = False
        return incoming[:, None] & outside[None]


@dataclass
class CosineFc(OnlineLearner):
    """Scores σ · cos(x, w), σ learned; on images trains the whole network [sec. 4.1, CosineFC]."""

    cosine = True
    guide = Guide("online", "Hou et al. 2019", "n D C", "frequent classes dominate")

    def unused(self, task: Task) -> dict[str, str]:
        """What angles and a single layer have no use for."""
        plain = {"momentum": "on vectors it takes plain steps"} if self.net == "linear" else {}
        scale = {"scale": "an angle does not depend on the length of a sample"}
        return super().unused(task) | plain | scale | {"hidden": "it has no hidden layer"}


@dataclass
class Overadapt(OnlineLearner):
    """Trains the last layer on the newest samples only [near-future accuracy, sec. 3]."""

    sampler: SamplerName = "fifo"
    head_only = True
    guide = Guide("online", "near-future accuracy", "n D C", "to show that online accuracy misleads")

    def unused(self, task: Task) -> dict[str, str]:
        """It has no memory to choose from."""
        why = "it trains on the newest samples; fc-only has other samplers"
        return super().unused(task) | dict.fromkeys(("sampler", "memory", "alpha"), why)


@dataclass
class RiverLogreg(Learner):
    """One pass over some of the seed data, then every correction, by SGD (extra `river`)."""

    lr: PositiveFloat = 0.01
    """learning rate"""
    seed_rows: PositiveInt = 3000
    """samples of the seed data, at most"""

    guide = Guide("online", "River; OCRR", "n D C", "a second implementation of an online head")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        from river.linear_model import LogisticRegression
        from river.multiclass import OneVsRestClassifier
        from river.optim import SGD

        self.model = OneVsRestClassifier(LogisticRegression(SGD(self.lr)))
        self.task, self.rng, self.gradient_steps = task, rng, 0

    def __getstate__(self) -> dict[str, Any]:
        """For checkpoints: weights, intercept and number of updates of each class's classifier, as plain data."""
        classifiers: dict[Any, Any] = self.model.classifiers
        heads = {
            label: (dict(head.weights.items()), head.intercept, head.optimizer.n_iterations)
            for label, head in classifiers.items()
        }
        return vars(self) | {"model": heads}

    def __setstate__(self, state: dict[str, Any]) -> None:
        heads = state.pop("model")
        self.lr, self.rng = state["lr"], state["rng"]
        self.begin(state["task"], self.rng)
        vars(self).update(state)
        for label, (weights, intercept, updates) in heads.items():
            head: Any = self.model.classifier.clone()
            for i, weight in weights.items():
                head._weights[i] = weight
            head.intercept, head.optimizer.n_iterations = intercept, updates
            self.model.classifiers[label] = head

    def learn(self, x: Array, y: Labels) -> None:
        rows = self.rng.choice(len(y), min(len(y), self.seed_rows), replace=False)
        for row, label in zip(unit(x[rows]).tolist(), y[rows].tolist(), strict=True):
            self.model.learn_one(dict(enumerate(row)), label)  # type: ignore[no-untyped-call]
        self.gradient_steps += 1  # one pass over the batch

    def predict(self, x: Array) -> Labels | tuple[Labels, Array]:
        """The class of the highest score, and its share of the probabilities, one classifier a class; before it has
        learned, no answer."""
        if not self.model.classifiers:
            return np.full(len(x), NO_ANSWER), np.zeros(len(x))
        scores = self._scores(x)
        share = 1 / (1 + np.exp(-scores))
        answers = np.array(list(self.model.classifiers), np.int64)[scores.argmax(1)]
        return answers, np.asarray(share.max(1) / share.sum(1), np.float64)

    def _scores(self, x: Array) -> npt.NDArray[np.float64]:
        rows = unit(x).astype(np.float64)
        names = list(self.model.classifiers)
        scores = np.empty((len(rows), len(names)))
        for j, name in enumerate(names):
            classifier: Any = self.model.classifiers[name]
            weights = np.zeros(rows.shape[1])
            for i, w in classifier.weights.items():
                weights[i] = w
            scores[:, j] = rows @ weights + classifier.intercept
        return scores

    def stored_bytes(self) -> int:
        """Eight bytes per weight."""
        heads: list[Any] = list(self.model.classifiers.values())
        return sum(8 * (len(head.weights) + 1) for head in heads)
