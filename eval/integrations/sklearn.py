"""A scikit-learn classifier as a learner: `evaluate(stream, "clear-iid", [Sklearn("sgd", SGDClassifier())])`."""

import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import PositiveInt

from driftline.curate.core.errors import BadConfig
from driftline.eval.learner import Array, Labels, Learner, Task
from driftline.eval.training.budget import Budget, batches_of

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
