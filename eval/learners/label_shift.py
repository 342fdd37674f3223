"""Class frequencies of test samples, estimated without labels, and answers corrected for them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from driftline.eval.engine.linear import on
from driftline.eval.engine.scores import softmax
from driftline.eval.learner import Array, Guide, Labels, Task
from driftline.eval.training.sgd_learner import NetLearner

Floats = npt.NDArray[np.float64]
ROUNDS, CLOSE = 1000, 1e-8  # of EM
HELD = 10_000  # newest held-out samples that stay


@dataclass
class HoldsOut(NetLearner):
    """A trained head that estimates class frequencies of test samples; answers are p(y|x) q(y) / p(y). Every fifth
    training sample is held out; the newest of them stay for the estimate."""

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        super().begin(task, rng)
        self.came = np.zeros(task.n_classes)  # labels so far
        self.held: list[tuple[Array, Labels]] = []
        self.forget()

    def forget(self) -> None:
        """Forget test samples."""
        self.seen: list[Floats] = []
        self.ratio = np.ones(self.task.n_classes)
        self.fitted = False

    def samples_trained(self, sizes: Sequence[int]) -> float:
        return super().samples_trained([n - n // 5 for n in sizes])

    def learn(self, x: Array, y: Labels) -> None:
        """Train on four of five samples; count all labels."""
        self.forget()
        apart = (int(self.came.sum()) + np.arange(len(y))) % 5 == 4
        self.came += np.bincount(y, minlength=self.task.n_classes)
        if apart.any():
            self.held.append((x[apart], np.asarray(y, np.int64)[apart]))
        while sum(len(labels) for _, labels in self.held[1:]) >= HELD:
            self.held.pop(0)
        if not apart.all():
            super().learn(x[~apart], y[~apart])

    def raw(self, x: Array) -> Floats:
        """Scores (N, C) of the trained head."""
        import torch

        with torch.inference_mode():
            return np.asarray(self.head.scores(on(self.inputs(x), self.head)).double().cpu().numpy())

    def probabilities(self, x: Array) -> Floats:
        """(N, C) of the trained head."""
        return softmax(self.raw(x))

    def adapt(self, batch: Any) -> dict[str, Any]:
        """Estimate the frequencies from all test samples so far."""
        if not self.fitted and self.held:
            held = self.held
            self.fit_held(np.concatenate([self.raw(x) for x, _ in held]), np.concatenate([y for _, y in held]))
        self.fitted = True
        self.seen.append(self.probabilities(batch.x))
        prior = self.came / self.came.sum()
        frequencies = self.estimate(np.concatenate(self.seen), prior)
        self.ratio = np.where(prior > 0, frequencies / np.where(prior > 0, prior, 1), 0.0)
        return {"frequencies": np.round(frequencies, 4).tolist()}

    @abstractmethod
    def fit_held(self, scores: Floats, y: Labels) -> None:
        """Learn what `estimate` needs, from the head's scores (n, C) of held-out samples and their labels (n,)."""

    @abstractmethod
    def estimate(self, probabilities: Floats, prior: Floats) -> Floats:
        """Frequencies (C,) of the classes of samples with these probabilities (N, C). prior (C,): of training."""

    def corrected(self, x: Array) -> Floats:
        """(N, C)."""
        weighted = self.probabilities(x) * self.ratio
        return np.asarray(weighted / np.maximum(weighted.sum(1, keepdims=True), 1e-300))

    def predict(self, x: Array) -> Labels | tuple[Labels, Array]:
        """The class of the highest corrected probability."""
        corrected = self.corrected(x)
        return np.asarray(corrected.argmax(1), np.int64), corrected


@dataclass
class Mlls(HoldsOut):
    """Maximum likelihood of the class frequencies by EM [Saerens et al. 2002, eq. 2.9], from probabilities that are
    calibrated on held-out samples at the first adaptation [Alexandari et al. 2020, sec. 2]. A head that is less sure
    than it is right lets EM end at the largest class."""

    calibrate: Literal["temperature", "bcts", "none"] = "temperature"
    """softmax(z T + b) with the least cross-entropy on held-out samples: T alone; with b, the paper's choice, which
    needs many held-out samples of each class; or neither"""

    guide = Guide("adaptation without labels", "Alexandari et al. 2020", "E n D C",
                  "classes are more or less frequent at test time")  # fmt: skip

    def forget(self) -> None:
        """Forget test samples, and a calibration of older weights."""
        super().forget()
        self.temperature, self.biases = 1.0, np.zeros(self.task.n_classes)

    def probabilities(self, x: Array) -> Floats:
        return softmax(self.raw(x) * self.temperature + self.biases)

    def fit_held(self, scores: Floats, y: Labels) -> None:
        if self.calibrate != "none":
            self.temperature, self.biases = calibrated(scores, y, self.calibrate == "bcts")

    def estimate(self, probabilities: Floats, prior: Floats) -> Floats:
        return em(probabilities, prior)


def calibrated(scores: Floats, y: Labels, biased: bool) -> tuple[float, Floats]:
    """T and b (C,) of softmax(z T + b) with the least mean cross-entropy on scores (n, C) and labels (n,), among the
    classes that have labels; b is zero for others, zero on average, and zero for all unless `biased`."""
    from scipy.optimize import minimize

    came, places = np.unique(y, return_inverse=True)
    rows, z = np.arange(len(y)), scores[:, came]

    def loss(point: Floats) -> tuple[float, Floats]:
        factor = np.exp(point[0])
        off = softmax(z * factor + point[1:] * biased)
        value = -np.log(np.maximum(off[rows, places], 1e-300)).mean()
        off[rows, places] -= 1
        return float(value), np.concatenate([[(off * z).sum() * factor / len(y)], off.mean(0) * biased])

    point = minimize(loss, np.zeros(len(came) + 1), jac=True, method="L-BFGS-B").x
    biases = np.zeros(scores.shape[1])
    biases[came] = (point[1:] - point[1:].mean()) * biased
    return float(np.exp(point[0])), biases


def em(probabilities: Floats, prior: Floats) -> Floats:
    """q ← mean of p(y|x) q / p, normalised for each sample, from q = p on [Saerens et al. 2002, eq. 2.9]."""
    estimate = prior.copy()
    for _ in range(ROUNDS):
        weighted = probabilities * np.where(prior > 0, estimate / np.where(prior > 0, prior, 1), 0)
        new = (weighted / np.maximum(weighted.sum(1, keepdims=True), 1e-300)).mean(0)
        close = float(np.abs(new - estimate).max()) < CLOSE
        estimate = new
        if close:
            break
    return estimate / estimate.sum()


@dataclass
class Bbse(HoldsOut):
    """Black-box shift estimation: w = C⁻¹ μ, with the confusions C on held-out source samples and the frequencies μ of
    answers to test samples [Lipton et al. 2018, sec. 4, eq. 4]."""

    guide = Guide("adaptation without labels", "Lipton et al. 2018", "E n D C", "as mlls, from answers alone")

    def forget(self) -> None:
        """Forget test samples, and confusions of older weights."""
        super().forget()
        self.confusions = np.zeros((self.task.n_classes,) * 2)  # row: answer, column: truth

    def fit_held(self, scores: Floats, y: Labels) -> None:
        np.add.at(self.confusions, (scores.argmax(1), y), 1)

    def estimate(self, probabilities: Floats, prior: Floats) -> Floats:
        """Negative frequencies become zero."""
        answers = np.bincount(probabilities.argmax(1), minlength=len(prior)) / len(probabilities)
        if not self.confusions.any():
            return prior
        joint = self.confusions / self.confusions.sum()
        weights = np.linalg.lstsq(joint, answers, rcond=None)[0].clip(min=0)
        shares = weights * joint.sum(0)
        return np.asarray(shares / shares.sum()) if shares.any() else prior
