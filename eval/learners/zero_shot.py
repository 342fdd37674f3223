"""Zero-shot classification: the class whose texts are nearest to an image, in the space of one encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import PositiveFloat, PositiveInt

from driftline.eval.engine.scores import softmax
from driftline.eval.learner import Array, Guide, Labels, Learner, Needs, Task
from driftline.eval.memory.knn_index import unit
from driftline.eval.training.closed_form import Floats

NEVER = -1e9  # score of a class without texts


@dataclass
class ZeroShot(Learner):
    """The class with the largest cosine between the sample and the mean of the class's text vectors; nothing is learned
    [Radford et al. 2021, sec. 3.1]. Classes without texts are never answered."""

    logit_scale: PositiveFloat = 100.0
    """of cosines before the softmax [Radford et al. 2021, sec. 2.5: 100 after training]"""

    needs = Needs(class_texts=True)
    knows = True
    guide = Guide("texts of the classes", "Radford et al. 2021", "nothing", "row 0 of every table on vectors of CLIP")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        assert task.class_texts is not None  # check_stream refuses a stream without
        self.task = task
        self.texts = task.class_texts.ensemble(task.n_classes)  # (C, D)
        self.silent = ~self.texts.any(1)

    def learn(self, x: Array, y: Labels) -> None:
        """Ignored."""

    def scores(self, x: Array) -> Floats:
        """(N, C): one product, whose rows are divided by the samples' lengths."""
        rows = np.asarray(x, np.float32)
        lengths = np.sqrt(np.einsum("nd,nd->n", rows, rows))
        scores = np.asarray(rows @ self.texts.T, np.float64)
        scores *= (self.logit_scale / np.maximum(lengths, 1e-12))[:, None]
        scores[:, self.silent] = NEVER
        return scores


@dataclass
class ZeroShotCalibrated(ZeroShot):
    """Zero-shot with corrected class probabilities: p(y|x) q(y) / p(y), where p(y) is the mean zero-shot probability of
    the training samples so far [Saerens et al. 2002, eq. 2.4; Zhao et al. 2021, sec. 5]."""

    target: Literal["uniform", "observed"] = "uniform"
    """q(y): equal, which needs no labels, or as often as the labels came so far"""

    guide = Guide("texts of the classes", "Saerens et al. 2002", "n D C",
                  "a class is answered too often; labels are not needed")  # fmt: skip

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        super().begin(task, rng)
        self.answered, self.came, self.seen = np.zeros(task.n_classes), np.zeros(task.n_classes), 0

    def learn(self, x: Array, y: Labels) -> None:
        self.answered += softmax(super().scores(x)).sum(0)
        self.came += np.bincount(y, minlength=self.task.n_classes)
        self.seen += len(y)

    def scores(self, x: Array) -> Floats:
        """(N, C), with one sample's worth of equal probabilities added to both."""
        scores = super().scores(x)
        mean = (self.answered + 1 / self.task.n_classes) / (self.seen + 1)
        wanted = (self.came + 1 / self.task.n_classes) / (self.seen + 1) if self.target == "observed" else 1.0
        scores += np.log(wanted) - np.log(mean)
        scores[:, self.silent] = NEVER
        return scores


@dataclass
class TipAdapter(ZeroShot):
    """Zero-shot scores plus votes of stored samples: α exp(-β (1 - cos)) [Zhang et al. 2022, sec. 3.1, eq. 3-5]."""

    shots: PositiveInt = 16
    """newest samples of each class that are stored [sec. 4.1: 16]"""
    alpha: PositiveFloat = 1.0
    """α, weight of the votes"""
    beta: PositiveFloat = 5.5
    """β, how fast a vote falls with the distance"""

    guide = Guide("texts of the classes", "Zhang et al. 2022", "n D C", "few labelled samples of each class")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        super().begin(task, rng)
        self.keys = np.zeros((0, self.texts.shape[1]), np.float32)
        self.values = np.zeros(0, np.int64)

    def learn(self, x: Array, y: Labels) -> None:
        keys, values = np.concatenate([self.keys, unit(x)]), np.concatenate([self.values, np.asarray(y, np.int64)])
        shots = np.concatenate([np.flatnonzero(values == k)[-self.shots :] for k in np.unique(values)] or [values[:0]])
        self.keys, self.values = keys[np.sort(shots)], values[np.sort(shots)]

    def scores(self, x: Array) -> Floats:
        scores = super().scores(x)
        if len(self.values):
            votes = np.exp(-self.beta * (1 - np.asarray(unit(x) @ self.keys.T, np.float64)))
            scores += self.alpha * votes @ np.eye(self.task.n_classes)[self.values]
            seen = np.isin(np.arange(self.task.n_classes), self.values)
            scores[:, self.silent & seen] -= NEVER  # its stored samples alone speak for it
        return scores
