"""Self-training: what a network is sure of among unlabelled samples becomes its training data [Scudder 1965; Lee 2013].

The worked example of continual semi-supervised learning, which CLEAR calls for [CLEAR, fig. 5]: any learner may ask a
step for `unlabelled` and its task for `prior`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from curate.core.errors import BadConfig, IncompatibleStream
from eval.learner import Task
from eval.training.sgd_learner import NetLearner
from stream_builder.stream import Step, pick

CHUNK = 1024  # unlabelled samples looked at together


@dataclass
class SelfTraining(NetLearner):
    """Trains on each step's labels, then on them and on its own confident answers. threshold: least probability of an
    answer that counts. rounds: how often the answers are taken anew."""

    needs_whole_steps = "unlabelled samples come with whole steps"

    threshold: float = 0.9
    rounds: int = 1

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """Raises BadConfig for a threshold that is no probability."""
        if not 0 < self.threshold <= 1 or self.rounds < 1:
            raise BadConfig(
                f"threshold is {self.threshold}, rounds {self.rounds}.", "Expected 0 < threshold ≤ 1 and a round."
            )
        super().begin(task, rng)
        self.waiting: list[Any] = [] if task.prior is None else [task.prior]
        self.taken, self.offered = 0, 0

    def learn_step(self, step: Step) -> None:
        """Raises IncompatibleStream where neither the step nor the time before it has unlabelled samples."""
        if step.unlabelled is not None:
            self.waiting.append(step.unlabelled)
        if not self.waiting and not self.offered:
            raise IncompatibleStream(
                "self-training needs unlabelled samples; the stream has none.",
                "Expected a release with release.unlabelled: images, as images (--features images:SIZE), or encoded.",
            )
        train = step["train"]
        self.train(train.x, train.y)
        for turn in range(self.rounds):
            found, labels = self._confident(counted=turn == 0)
            if len(labels):
                x = np.concatenate([np.asarray(train.x), found.astype(train.x.dtype)])
                self.train(x, np.concatenate([train.y, labels]))
        self.waiting.clear()

    def _confident(self, counted: bool) -> tuple[Any, Any]:
        """Unlabelled samples whose answer is sure, and the answers."""
        samples, labels = [], []
        for bare in self.waiting:
            for low in range(0, len(bare), CHUNK):
                x = np.asarray(pick(bare, slice(low, low + CHUNK)))
                sure = self.confidence(x)
                assert sure is not None  # a network always tells
                here = np.flatnonzero(sure >= self.threshold)
                if counted:
                    self.offered += len(x)
                    self.taken += len(here)
                if len(here):
                    samples.append(x[here])
                    labels.append(self.predict(x[here]))
        if not samples:
            return np.zeros(0), np.zeros(0, np.int64)
        return np.concatenate(samples), np.concatenate(labels)

    def metadata(self) -> dict[str, Any]:
        """How many unlabelled samples were seen, and learned from."""
        return super().metadata() | {"unlabelled": self.offered, "pseudo_labelled": self.taken}
