"""Class frequencies of test samples, estimated without labels, and answers corrected for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from eval.engine.linear import on
from eval.learner import Array, Labels, Task
from eval.training.closed_form import softmax
from eval.training.sgd_learner import NetLearner

Floats = npt.NDArray[np.float64]
ROUNDS, CLOSE = 1000, 1e-8  # of EM


@dataclass
class Mlls(NetLearner):
    """Maximum likelihood of the class frequencies by EM, from the probabilities of a trained head [Saerens et al. 2002,
    eq. 2.9; Alexandari et al. 2020]; answers are p(y|x) q(y) / p(y)."""

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """Start untrained."""
        super().begin(task, rng)
        self.came = np.zeros(task.n_classes)  # labels of training
        self.forget()

    def forget(self) -> None:
        """Forget test samples."""
        self.seen: list[Floats] = []
        self.ratio = np.ones(self.task.n_classes)

    def learn(self, x: Array, y: Labels) -> None:
        """Train; count the labels."""
        self.forget()
        self.came += np.bincount(y, minlength=self.task.n_classes)
        super().learn(x, y)

    def probabilities(self, x: Array) -> Floats:
        """(N, C) of the trained head."""
        import torch

        with torch.inference_mode():
            scores = self.head.scores(on(self.inputs(x), self.head))
        return softmax(scores.double().cpu().numpy())

    def adapt(self, batch: Any) -> dict[str, Any]:
        """Estimate the frequencies from all test samples so far."""
        self.seen.append(self.probabilities(batch.x))
        known = self.came > 0
        frequencies = self.estimate(np.concatenate(self.seen), known)
        prior = self.came / self.came.sum()
        self.ratio = np.where(known, frequencies / np.where(known, prior, 1), 0.0)
        return {"frequencies": np.round(frequencies, 4).tolist()}

    def estimate(self, probabilities: Floats, known: npt.NDArray[np.bool_]) -> Floats:
        """Frequencies (C,) of the classes of samples with these probabilities (N, C)."""
        return em(probabilities, self.came / self.came.sum())

    def corrected(self, x: Array) -> Floats:
        """(N, C)."""
        weighted = self.probabilities(x) * self.ratio
        return np.asarray(weighted / np.maximum(weighted.sum(1, keepdims=True), 1e-300))

    def predict(self, x: Array) -> Labels:
        """The class of the highest corrected probability."""
        return np.asarray(self.corrected(x).argmax(1), np.int64)

    def confidence(self, x: Array) -> npt.NDArray[np.float64] | None:
        """The answer's corrected probability."""
        return np.asarray(self.corrected(x).max(1))

    def predict_with_confidence(self, x: Array) -> tuple[Labels, npt.NDArray[np.float64] | None]:
        """Both from the same probabilities."""
        corrected = self.corrected(x)
        return np.asarray(corrected.argmax(1), np.int64), corrected.max(1)


def em(probabilities: Floats, prior: Floats) -> Floats:
    """q ← mean of p(y|x) q / p, normalised for each sample, from q = p on [Saerens et al. 2002, eq. 2.9]."""
    found = prior.copy()
    for _ in range(ROUNDS):
        weighted = probabilities * np.where(prior > 0, found / np.where(prior > 0, prior, 1), 0)
        new = (weighted / np.maximum(weighted.sum(1, keepdims=True), 1e-300)).mean(0)
        close = float(np.abs(new - found).max()) < CLOSE
        found = new
        if close:
            break
    return found / found.sum()


@dataclass
class Bbse(Mlls):
    """Black-box shift estimation: w = C⁻¹ μ, with the confusions C on held-out source samples and the frequencies μ of
    answers to test samples [Lipton et al. 2018, sec. 4, eq. 4]. Every fifth training sample is held out for C."""

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """Start untrained."""
        super().begin(task, rng)
        self.confusions = np.zeros((task.n_classes, task.n_classes))  # row: answer, column: truth

    def samples_trained(self, sizes: Sequence[int]) -> float:
        """Four of five samples of every step."""
        return super().samples_trained([n - n // 5 for n in sizes])

    def learn(self, x: Array, y: Labels) -> None:
        """Train on four of five samples; count confusions on the others."""
        held = np.arange(len(y)) % 5 == 4
        super().learn(x[~held], y[~held])
        if held.any():
            np.add.at(self.confusions, (self.probabilities(x[held]).argmax(1), y[held]), 1)

    def estimate(self, probabilities: Floats, known: npt.NDArray[np.bool_]) -> Floats:
        """Frequencies (C,); negative ones become zero."""
        classes = len(known)
        answers = np.bincount(probabilities.argmax(1), minlength=classes) / len(probabilities)
        if not self.confusions.any():
            return self.came / self.came.sum()
        joint = self.confusions / self.confusions.sum()
        weights = np.linalg.lstsq(joint, answers, rcond=None)[0].clip(min=0)
        found = weights * joint.sum(0)
        return found / found.sum() if found.any() else self.came / self.came.sum()
