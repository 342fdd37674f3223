"""SLDA: linear discriminant analysis on running sums, with shrinkage [Hayes & Kanan 2020]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from eval.learner import Array, Labels
from eval.training.closed_form import ClosedForm, Floats, add_squares, softmax, solve

ROUNDING = 1e-12  # of the mean square of features: variance that is lost when sums are subtracted


@dataclass
class Slda(ClosedForm):
    """Gaussian classes with one covariance: w = Σ⁻¹ μ, b = -μᵀ Σ⁻¹ μ / 2 [Hayes & Kanan 2020, sec. 3, eq. 1–4].

    Σ is the exact covariance within classes, as scikit-learn's LDA has it. The paper's recursion weighs an update by
    t / (t + 1) with t samples of all classes, where the exact one has the samples of the class; both agree in the
    limit. It shrinks Σ towards the identity; here it is the identity times the mean variance, so that the unit of the
    features does not matter.
    """

    shrinkage: Annotated[float, Field(gt=0, le=1)] | Literal["oas"] = "oas"
    """ε of (1 - ε) Σ + ε tr(Σ)/D I [eq. 4: 10⁻⁴]; 0.1 to 0.5 is shrinkage LDA; "oas": chosen for the number of
    samples by the formula of Chen et al. 2010, eq. 23, as scikit-learn computes it"""
    priors: Literal["uniform", "observed"] = "uniform"
    """probabilities of the classes: equal, as in the paper, or as often as they came"""

    def solve(self) -> tuple[Floats, ...]:
        """Weights (D, C) and bias (C,)."""
        counts, means = np.where(self.known(), self.moments.counts, 0), self.moments.means()
        total, width = counts.sum(), self.lifted
        square = self.moments.squares[0]
        assert square is not None  # something was learned
        within = square.copy(order="F")  # the only further D × D matrix
        within = add_squares(within, means * np.sqrt(counts)[:, None], -1.0)
        within /= total
        diagonal = np.arange(width)
        rounding = ROUNDING * float(square[diagonal, diagonal].mean()) / total
        variance = float(np.maximum(within[diagonal, diagonal], 0).mean())
        share = oas(within, total) if self.shrinkage == "oas" else self.shrinkage
        within *= 1 - share
        within[diagonal, diagonal] += share * variance + rounding
        weights = solve(within, means.T)
        bias = -(means.T * weights).sum(0) / 2
        if self.priors == "observed":
            bias += np.log(np.maximum(counts / total, 1e-300))
        return weights, bias

    def confidence(self, x: Array) -> npt.NDArray[np.float64] | None:
        """Posterior probability of the answer."""
        return self.predict_with_confidence(x)[1]

    def predict_with_confidence(self, x: Array) -> tuple[Labels, npt.NDArray[np.float64] | None]:
        """Both from the same scores."""
        if not self.known().any():
            return np.zeros(len(x), np.int64), np.full(len(x), 1 / self.task.n_classes)
        scores = self.of_classes(x)
        return np.asarray(scores.argmax(1), np.int64), softmax(scores).max(1)

    def class_probabilities(self, x: Array) -> npt.NDArray[np.float64] | None:
        """Posterior probabilities; None before anything was learned."""
        return softmax(self.of_classes(x)) if self.known().any() else None


def oas(covariance: Floats, n: float) -> float:
    """Oracle approximating shrinkage of the lower triangle of a covariance (D, D) of n samples [Chen et al. 2010, eq.
    23; scikit-learn]."""
    width = len(covariance)
    diagonal = covariance[np.arange(width), np.arange(width)]
    mean = (2 * np.einsum("ij,ij->", covariance, covariance) - (diagonal**2).sum()) / width**2
    variance = diagonal.mean() ** 2
    below = (n + 1) * (mean - variance / width)
    return 1.0 if below <= 0 else float(min((mean + variance) / below, 1.0))
