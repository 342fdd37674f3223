"""A scikit-learn classifier as a learner: `evaluate(stream, "clear-iid", [Sklearn("sgd", SGDClassifier())])`."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import PositiveInt

from driftline.curate.core.errors import BadConfig
from driftline.eval.learner import Array, Labels, Learner, Task
from driftline.eval.training.budget import Budget, batches_of


def flat(x: Array) -> Array:
    """(N, ...) → (N, D) float32; uint8 images become 0 … 1."""
    rows = np.asarray(x).reshape(len(x), -1)
    return np.asarray(rows, np.float32) / np.float32(255 if rows.dtype == np.uint8 else 1)


@dataclass
class Sklearn(Learner):
    """A scikit-learn classifier with `partial_fit`."""

    name: str
    """name in the results"""
    estimator: Any
    """the classifier; it is cloned"""
    epochs: PositiveInt = 1
    """passes over each batch of data, each in random order; a budget of updates replaces them"""
    budgeted = ("epochs",)

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """A clone of the estimator, with a random_state from `rng` if it has one."""
        from sklearn.base import clone

        if not hasattr(self.estimator, "partial_fit"):
            problem = f"{type(self.estimator).__name__} has no partial_fit."
            raise BadConfig(problem, "Expected an estimator that learns incrementally, such as SGDClassifier.")
        self.task, self.rng, self.fitted, self.gradient_steps = task, rng, False, 0
        self.budget = Budget(task)
        self.model = clone(self.estimator)
        if "random_state" in self.model.get_params():
            self.model.set_params(random_state=int(rng.integers(2**31)))

    def learn(self, x: Array, y: Labels) -> None:
        """partial_fit with all classes."""
        rows = flat(x)
        for order in batches_of(len(y), len(y), self.epochs, self.rng, self.budget.take()):
            self.model.partial_fit(rows[order], y[order], classes=np.arange(self.task.n_classes))
            self.gradient_steps += 1  # a pass over a batch
            self.fitted = True

    def predict(self, x: Array) -> Labels | tuple[Labels, Array]:
        """The estimator's answers, class 0 before it has learned; with predict_proba if it has that."""
        if not self.fitted:
            return np.zeros(len(x), np.int64)
        rows = flat(x)
        labels = np.asarray(self.model.predict(rows), np.int64)
        if not hasattr(self.model, "predict_proba"):
            return labels
        return labels, np.asarray(self.model.predict_proba(rows), np.float64)

    def stored_bytes(self) -> int:
        """Bytes of the pickled estimator."""
        return len(pickle.dumps(self.model))

    def settings(self) -> dict[str, Any]:
        """The estimator's parameters, as text."""
        return {"estimator": repr(self.estimator), "epochs": self.epochs}
