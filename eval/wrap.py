"""Other people's code as learners: scikit-learn, river, torch modules, Avalanche strategies.

evaluate(stream, "clear-iid", [Sklearn("sgd", SGDClassifier()), "finetune"])
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from curate.ground.errors import BadConfig, Diverged
from eval.learner import Array, Labels, Learner, Task
from stream_builder.stream import Step


def flat(x: Array) -> Array:
    """(N, ...) → (N, D) float32; uint8 images become 0 … 1."""
    rows = np.asarray(x).reshape(len(x), -1)
    return np.asarray(rows, np.float32) / np.float32(255 if rows.dtype == np.uint8 else 1)


@dataclass
class Sklearn(Learner):
    """A scikit-learn classifier with `partial_fit`. epochs: passes over each batch of data, each in random order."""

    name: str
    estimator: Any
    epochs: int = 1

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """A clone of the estimator, its random_state from `rng` where it has one."""
        from sklearn.base import clone

        if not hasattr(self.estimator, "partial_fit"):
            raise BadConfig(
                f"{type(self.estimator).__name__} has no partial_fit.", "Expected one that learns in parts."
            )
        self.task, self.rng, self.fitted, self.gradient_steps = task, rng, False, 0
        self.model = clone(self.estimator)
        if "random_state" in self.model.get_params():
            self.model.set_params(random_state=int(rng.integers(2**31)))

    def learn(self, x: Array, y: Labels) -> None:
        """partial_fit, told all classes."""
        rows = flat(x)
        for _ in range(self.epochs):
            order = self.rng.permutation(len(y))
            self.model.partial_fit(rows[order], y[order], classes=np.arange(self.task.n_classes))
        self.fitted = True

    def predict(self, x: Array) -> Labels:
        """The estimator's; class 0 before it has learned."""
        if not self.fitted:
            return np.zeros(len(x), np.int64)
        return np.asarray(self.model.predict(flat(x)), np.int64)

    def stored_bytes(self) -> int:
        """Of the pickled estimator."""
        return len(pickle.dumps(self.model))

    def settings(self) -> dict[str, Any]:
        """The estimator's parameters, as text."""
        return {"estimator": repr(self.estimator), "epochs": self.epochs}


@dataclass
class River(Learner):
    """A river classifier: one sample at a time, in order. make: gives a new one."""

    name: str
    make: Callable[[], Any]

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """A new classifier."""
        self.model, self.gradient_steps = self.make(), 0

    def learn(self, x: Array, y: Labels) -> None:
        """learn_one for every sample."""
        for row, label in zip(flat(x).tolist(), y.tolist(), strict=True):
            self.model.learn_one(dict(enumerate(row)), label)

    def predict(self, x: Array) -> Labels:
        """predict_one; class 0 where it has no answer yet."""
        answers = [self.model.predict_one(dict(enumerate(row))) for row in flat(x).tolist()]
        return np.array([0 if a is None else int(a) for a in answers], np.int64)

    def stored_bytes(self) -> int:
        """Of the pickled classifier."""
        return len(pickle.dumps(self.model))

    def settings(self) -> dict[str, Any]:
        """The classifier, as text."""
        return {"classifier": repr(self.make())}


@contextmanager
def seeded(rng: np.random.Generator) -> Iterator[None]:
    """torch's own generator from `rng`, and as before afterwards."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**31)))
        yield


@dataclass
class Torch(Learner):
    """Any torch.nn.Module with an optimiser, trained on cross-entropy. module: task → module; optimiser: parameters →
    optimiser, made anew for every call of `learn`. Images reach the module as (B, 3, H, W) float32 in 0 … 1."""

    name: str
    module: Callable[[Task], Any]
    optimiser: Callable[[Any], Any]
    epochs: int = 1
    batch: int = 64

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """A new module."""
        self.rng, self.gradient_steps = rng, 0
        with seeded(rng):
            self.net = self.module(task)

    def learn(self, x: Array, y: Labels) -> None:
        """Epochs of batches in random order. Raises Diverged where the loss is not finite."""
        import torch
        from torch.nn.functional import cross_entropy

        optimiser = self.optimiser(self.net.parameters())
        self.net.train()
        with seeded(self.rng):
            for _ in range(self.epochs):
                order = self.rng.permutation(len(y))
                for low in range(0, len(y), self.batch):
                    here = order[low : low + self.batch]
                    loss = cross_entropy(self.net(self._tensor(x[here])), torch.from_numpy(np.asarray(y[here])))
                    if not bool(torch.isfinite(loss)):
                        raise Diverged(f"The loss of {self.name} is not finite.", "", "Lower its learning rate.")
                    optimiser.zero_grad()
                    loss.backward()  # type: ignore[no-untyped-call]
                    optimiser.step()
                    self.gradient_steps += 1

    def predict(self, x: Array) -> Labels:
        """Class of the highest output, in blocks of 1,024."""
        import torch

        self.net.eval()
        with torch.inference_mode():
            blocks = (self._tensor(x[low : low + 1024]) for low in range(0, len(x), 1024))
            return np.concatenate([np.zeros(0, np.int64), *(self.net(b).argmax(1).numpy() for b in blocks)])

    @staticmethod
    def _tensor(x: Array) -> Any:
        import torch

        if x.dtype == np.uint8 and x.ndim == 4:
            return torch.from_numpy(np.ascontiguousarray(x.transpose(0, 3, 1, 2))).float() / 255
        return torch.from_numpy(np.ascontiguousarray(x, np.float32))

    def stored_bytes(self) -> int:
        """Of the module's parameters and buffers."""
        return sum(t.nbytes for t in self.net.state_dict().values())

    def settings(self) -> dict[str, Any]:
        """What can be told of it."""
        return {"module": self.name, "epochs": self.epochs, "batch": self.batch}


@dataclass
class Avalanche(Learner):
    """An Avalanche strategy (extra `avalanche`). strategy: task → a strategy, with its own epochs and batches."""

    name: str
    strategy: Callable[[Task], Any]

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """A new strategy."""
        self.rng, self.task, self.gradient_steps = rng, task, 0
        with seeded(rng):
            self.model = self.strategy(task)

    def learn(self, x: Array, y: Labels) -> None:
        """One experience."""
        import torch
        from avalanche.benchmarks import benchmark_from_datasets
        from avalanche.benchmarks.utils import as_taskaware_classification_dataset, make_avalanche_dataset
        from avalanche.benchmarks.utils.data_attribute import DataAttribute

        labels = y.tolist()
        tensors = torch.utils.data.TensorDataset(Torch._tensor(x), torch.tensor(labels))
        attributes = [DataAttribute(labels, "targets"), DataAttribute([0] * len(labels), "targets_task_labels", True)]
        data = as_taskaware_classification_dataset(make_avalanche_dataset(tensors, data_attributes=attributes))
        made = benchmark_from_datasets(train=[data])
        (experience,) = made.train_stream
        experience.current_experience = int(self.model.clock.train_exp_counter)
        with seeded(self.rng):
            self.model.train(experience)
        self.gradient_steps = int(self.model.clock.train_iterations)

    def learn_step(self, step: Step) -> None:
        """A time step is an experience."""
        self.learn(np.asarray(step["train"].x), step["train"].y)

    def predict(self, x: Array) -> Labels:
        """Class of the model's highest output."""
        import torch

        self.model.model.eval()
        with torch.inference_mode():
            return np.asarray(self.model.model(Torch._tensor(x)).argmax(1).numpy(), np.int64)

    def stored_bytes(self) -> int:
        """Of the model; plugins' memories are not seen from outside."""
        return sum(t.nbytes for t in self.model.model.state_dict().values())

    def settings(self) -> dict[str, Any]:
        """What can be told of it."""
        return {"strategy": self.name}
