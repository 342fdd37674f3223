"""Models of other libraries as learners: scikit-learn, torch modules, Avalanche strategies."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
from pydantic import PositiveInt

from driftline.curate.core.errors import BadConfig, BadPlugin, Diverged
from driftline.curate.core.late import torch
from driftline.eval.engine.linear import seeded
from driftline.eval.learner import Array, Labels, Learner, Task
from driftline.eval.training.sgd_learner import Budget, Device, batches_of, place

WHOLE = 1 << 20  # characters


def flat(x: Array) -> Array:
    """(N, ...) → (N, D) float32; uint8 images become 0 … 1."""
    rows = np.asarray(x).reshape(len(x), -1)
    return np.asarray(rows, np.float32) / np.float32(255 if rows.dtype == np.uint8 else 1)


def described(estimator: Any) -> str:
    """Its parameters in one line. Scikit-learn's own text leaves out the middle of long ones, which then look equal."""
    from sklearn.base import BaseEstimator

    whole = estimator.__repr__(WHOLE) if type(estimator).__repr__ is BaseEstimator.__repr__ else None
    return " ".join((whole or repr(estimator)).split())


@dataclass
class Sklearn(Learner):
    """A scikit-learn classifier or Pipeline. With `partial_fit` it learns batch by batch; with `fit` alone it is fitted
    again on all samples so far, which it stores."""

    name: str
    """name in the results"""
    estimator: Any
    """the classifier; it is cloned"""
    epochs: PositiveInt = 1
    """partial_fit: passes over each batch of data, each in random order; a budget of updates replaces them"""

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """A clone of the estimator, with each random_state from `rng`. Raises BadConfig for what is no classifier."""
        from sklearn.base import clone

        if not (hasattr(self.estimator, "fit") and hasattr(self.estimator, "predict")):
            problem = f"{type(self.estimator).__name__} has no fit and predict."
            raise BadConfig(problem, "Expected a scikit-learn classifier, as LogisticRegression().")
        self.task, self.rng, self.budget = task, rng, Budget(task)
        self.gradient_steps, self.extra = 0, 0.0
        self.answered = np.zeros(0, np.int64)  # classes that the model answers
        self.model = clone(self.estimator)
        self.batches: list[tuple[Array, Labels]] = []
        for key in self.model.get_params():
            if key == "random_state" or key.endswith("__random_state"):
                self.model.set_params(**{key: int(rng.integers(2**31))})

    def unused(self, task: Task) -> dict[str, str]:
        """Epochs under a budget of updates."""
        return task.budgeted("epochs")

    def learn(self, x: Array, y: Labels) -> None:
        """partial_fit with all classes, or fit on all samples so far, as soon as a budget pays for that."""
        if hasattr(self.estimator, "partial_fit"):
            rows = flat(x)
            for order in batches_of(len(y), len(y), self.epochs, self.rng, self.budget.take()):
                self.model.partial_fit(rows[order], y[order], classes=np.arange(self.task.n_classes))
                self.gradient_steps += 1  # a pass over a batch
                self.answered = np.arange(self.task.n_classes)
            return
        self.batches.append((flat(x), np.asarray(y, np.int64)))
        rows, labels = (np.concatenate(part) for part in zip(*self.batches, strict=True))
        cost = max(1.0, len(labels) / self.task.batch) if self.task.batch else 1.0
        if (paid := self.budget.take(cost)) != 0:
            self.budget.credit += (paid - 1) * cost if paid else 0.0  # one fit is enough
            self.answered = np.unique(labels)
            if len(self.answered) > 1:  # a classifier of one class is refused by most
                self.model.fit(rows, labels)
            self.gradient_steps, self.extra = self.gradient_steps + 1, self.extra + cost - 1

    def predict(self, x: Array) -> Labels | tuple[Labels, Array]:
        """The estimator's answers, class 0 before it has learned; with predict_proba if it has that."""
        if len(self.answered) < 2:
            return np.full(len(x), self.answered[0] if len(self.answered) else 0, np.int64)
        rows = flat(x)
        labels = np.asarray(self.model.predict(rows), np.int64)
        if not hasattr(self.model, "predict_proba"):
            return labels
        probabilities = np.zeros((len(x), self.task.n_classes))
        probabilities[:, self.answered] = self.model.predict_proba(rows)
        return labels, probabilities

    def stored_bytes(self) -> int:
        """Bytes of the pickled estimator, and of the samples that it is fitted on again."""
        return len(pickle.dumps(self.model)) + sum(x.nbytes + y.nbytes for x, y in self.batches)

    def settings(self) -> dict[str, Any]:
        """The estimator's parameters, as text, and how it learns."""
        estimator = described(self.estimator)
        if hasattr(self.estimator, "partial_fit"):
            return {"estimator": estimator, "epochs": self.epochs}
        return {"estimator": estimator, "learns": "by fit on all samples so far"}


ANSWERED = 1024  # samples that are predicted at once


@dataclass
class Torch(Learner):
    """Any torch.nn.Module with an optimiser. Images are (B, 3, H, W) float32 in 0 … 1, other samples float32.

    The record of a run names the optimiser and the loss. For a schedule, augmentation or a loop of your own derive a
    class from `Learner`.
    """

    name: str
    """name in the results"""
    module: Callable[[Task], Any]
    """task → module"""
    optimiser: Callable[[Any], Any]
    """parameters → optimiser, a new one for every call of `learn`"""
    epochs: PositiveInt = 1
    """passes over each batch of data; a budget of updates replaces them"""
    batch: PositiveInt = 64
    """samples per update"""
    loss: Callable[[Any, Any, Any], Any] | None = None
    """(module, x, y) → loss of a batch; None: cross-entropy of the module's outputs"""
    device: Device = "cpu"
    """cpu, cuda or auto"""

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """A new module. Raises BadPlugin if `module` makes none."""
        self.rng, self.gradient_steps, self.place = rng, 0, place(self.device)
        self.cost, self.budget = task.cost_of(self.batch), Budget(task)
        with seeded(rng):
            self.net = self.module(task)
        if not hasattr(self.net, "state_dict"):
            problem = f"module of {self.name} made {type(self.net).__name__}."
            raise BadPlugin(problem, "Expected a function from a Task to a torch.nn.Module.")
        self.net.to(self.place)

    def unused(self, task: Task) -> dict[str, str]:
        """Epochs under a budget of updates."""
        return task.budgeted("epochs")

    def learn(self, x: Array, y: Labels) -> None:
        """Train on batches in random order: as many updates as are paid for; without a budget `epochs` passes. Raises
        Diverged if the loss is not finite."""
        optimiser, updates = self.optimiser(self.net.parameters()), self.budget.take(self.cost)
        self.net.train()
        with seeded(self.rng):
            for rows in batches_of(len(y), self.batch, self.epochs, self.rng, updates):
                labels = torch.from_numpy(np.array(y[rows], np.int64))
                self._update(optimiser, tensor_of(x[rows]).to(self.place), labels.to(self.place))

    def _update(self, optimiser: Any, x: Any, y: Any) -> None:
        loss = torch.nn.functional.cross_entropy(self.net(x), y) if self.loss is None else self.loss(self.net, x, y)
        if not bool(torch.isfinite(loss)):
            raise Diverged(f"The loss of {self.name} is not finite.", "", "Lower its learning rate.")
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        self.gradient_steps += 1

    def scores(self, x: Array) -> Array:
        """Outputs of the module (N, C), in blocks of 1,024."""
        self.net.eval()
        with torch.inference_mode():
            blocks = (tensor_of(x[low : low + ANSWERED]).to(self.place) for low in range(0, max(1, len(x)), ANSWERED))
            return np.concatenate([self.net(block).float().cpu().numpy() for block in blocks])

    def stored_bytes(self) -> int:
        """Bytes of the module's parameters and buffers."""
        return sum(t.nbytes for t in self.net.state_dict().values())

    def settings(self) -> dict[str, Any]:
        """Its name and settings, functions by their names."""
        own = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in ("name", "module")}
        named = {name: text_of(value) if callable(value) else value for name, value in own.items()}
        return {"module": self.name, **{name: value for name, value in named.items() if value is not None}}


def tensor_of(x: Array) -> Any:
    """A copy of samples: images (B, H, W, 3) uint8 → (B, 3, H, W) float32 in 0 … 1, others float32."""
    if x.dtype == np.uint8 and x.ndim == 4:
        return torch.from_numpy(x.transpose(0, 3, 1, 2).copy()).float() / 255
    return torch.from_numpy(np.array(x, np.float32))


def text_of(function: Any) -> str:
    """A function as its record shows it.

    >>> text_of(partial(int, base=2)), text_of(len), text_of(lambda x: x)
    ('int(base=2)', 'len', '<lambda>')
    """
    if isinstance(function, partial):
        arguments = [*map(repr, function.args), *(f"{key}={value!r}" for key, value in function.keywords.items())]
        return f"{text_of(function.func)}({', '.join(arguments)})"
    return str(getattr(function, "__name__", type(function).__name__))


@dataclass
class Avalanche(Learner):
    """An Avalanche strategy (extra `avalanche`)."""

    name: str
    """name in the results"""
    strategy: Callable[[Task], Any]
    """task → a strategy, with its own epochs and batches"""

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """A new strategy."""
        self.rng, self.task, self.gradient_steps = rng, task, 0
        with seeded(rng):
            self.model = self.strategy(task)
        self.cost, self.budget = task.cost_of(self.model.train_mb_size), Budget(task)

    def learn(self, x: Array, y: Labels) -> None:
        """Learn the batch as one experience; under a budget, for as many whole epochs as it pays for."""
        from avalanche.benchmarks import benchmark_from_datasets
        from avalanche.benchmarks.utils import as_taskaware_classification_dataset, make_avalanche_dataset
        from avalanche.benchmarks.utils.data_attribute import DataAttribute

        epochs = self.budget.take(self.cost * -(-len(y) // self.model.train_mb_size))
        if epochs == 0:
            return
        self.model.train_epochs = epochs or self.model.train_epochs
        labels = y.tolist()
        tensors = torch.utils.data.TensorDataset(tensor_of(np.asarray(x)), torch.tensor(labels))
        attributes = [DataAttribute(labels, "targets"), DataAttribute([0] * len(labels), "targets_task_labels", True)]
        data = as_taskaware_classification_dataset(make_avalanche_dataset(tensors, data_attributes=attributes))
        benchmark = benchmark_from_datasets(train=[data])
        (experience,) = benchmark.train_stream
        experience.current_experience = int(self.model.clock.train_exp_counter)
        with seeded(self.rng):
            self.model.train(experience)
        self.gradient_steps = int(self.model.clock.train_iterations)

    def scores(self, x: Array) -> Array:
        """The model's outputs (N, C)."""
        self.model.model.eval()
        with torch.inference_mode():
            return np.asarray(self.model.model(tensor_of(x)).numpy())

    def stored_bytes(self) -> int:
        """Bytes of the model; memories of plug-ins are not included."""
        return sum(t.nbytes for t in self.model.model.state_dict().values())

    def settings(self) -> dict[str, Any]:
        """Its name."""
        return {"strategy": self.name}
