"""A river classifier as a learner, one sample at a time."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from driftline.eval.integrations.sklearn import flat
from driftline.eval.learner import Array, Labels, Learner, Task


@dataclass
class River(Learner):
    """A river classifier, which learns one sample at a time, in order."""

    name: str
    """name in the results"""
    make: Callable[[], Any]
    """makes a new classifier"""

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """A new classifier."""
        self.model, self.gradient_steps = self.make(), 0

    def learn(self, x: Array, y: Labels) -> None:
        """learn_one for every sample."""
        for row, label in zip(flat(x).tolist(), y.tolist(), strict=True):
            self.model.learn_one(dict(enumerate(row)), label)
        self.gradient_steps += 1  # a pass over a batch

    def predict(self, x: Array) -> Labels:
        """predict_one; class 0 if it has no answer yet."""
        answers = [self.model.predict_one(dict(enumerate(row))) for row in flat(x).tolist()]
        return np.array([0 if a is None else int(a) for a in answers], np.int64)

    def stored_bytes(self) -> int:
        """Bytes of the pickled classifier."""
        return len(pickle.dumps(self.model))

    def settings(self) -> dict[str, Any]:
        """The classifier, as text."""
        return {"classifier": repr(self.make())}
