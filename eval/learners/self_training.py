"""Self-training: confident predictions on unlabelled samples become training data [Scudder 1965; Lee 2013].

A worked example of continual semi-supervised learning, which CLEAR calls for [CLEAR, fig. 5]: any learner may read
`unlabelled` of a step and `prior` of its task.
"""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field, PositiveInt

from driftline.curate.core.errors import IncompatibleStream
from driftline.eval.engine.scores import sureness
from driftline.eval.learner import Guide, Needs, Task
from driftline.eval.training.sgd_learner import NetLearner
from driftline.stream_builder.stream import Step, pick

CHUNK = 1024  # unlabelled samples predicted at once


@dataclass
class SelfTraining(NetLearner):
    """Trains on each step's labels, then on them and on its own confident predictions."""

    threshold: Annotated[float, Field(gt=0, le=1)] = 0.9
    """least probability of a prediction that is used"""
    rounds: PositiveInt = 1
    """how often the predictions are repeated"""

    needs = Needs(whole_steps="unlabelled samples come with whole steps", unlabelled=True)
    guide = Guide("trained heads", "Lee 2013", "twice E n D C", "unlabelled samples come with the steps")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        super().begin(task, rng)
        self.waiting: list[Any] = [] if task.prior is None else [task.prior]
        self.taken, self.offered = 0, 0

    def learn_step(self, step: Step) -> None:
        """Raises IncompatibleStream if neither this step nor anything before it had unlabelled samples."""
        if step.unlabelled is not None:
            self.waiting.append(step.unlabelled)
        if not self.waiting and not self.offered:
            raise IncompatibleStream(
                "self-training needs unlabelled samples; the protocol shows it none.", "", "Use clear-iid."
            )
        train = step["train"]
        self.train(train.x, train.y)
        for turn in range(self.rounds):
            confident, labels = self._confident(counted=turn == 0)
            if len(labels):
                x = np.concatenate([np.asarray(train.x), confident.astype(train.x.dtype)])
                self.train(x, np.concatenate([train.y, labels]))
        self.waiting.clear()

    def _confident(self, counted: bool) -> tuple[Any, Any]:
        """Unlabelled samples with a confident prediction, and the predictions."""
        samples, labels = [], []
        for unlabelled in self.waiting:
            for low in range(0, len(unlabelled), CHUNK):
                x = np.asarray(pick(unlabelled, slice(low, low + CHUNK)))
                scores = self.scores(x)
                answers = scores.argmax(1)
                rows = np.flatnonzero(sureness(scores, answers) >= self.threshold)
                if counted:
                    self.offered += len(x)
                    self.taken += len(rows)
                if len(rows):
                    samples.append(x[rows])
                    labels.append(answers[rows])
        if not samples:
            return np.zeros(0), np.zeros(0, np.int64)
        return np.concatenate(samples), np.concatenate(labels)

    def metadata(self) -> dict[str, Any]:
        """Numbers of unlabelled samples: seen, and used."""
        return {"unlabelled": self.offered, "pseudo_labelled": self.taken}
