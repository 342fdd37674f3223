"""SLDA: linear discriminant analysis on running sums, with shrinkage [Hayes & Kanan 2020]."""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from driftline.eval.learner import Array, Guide
from driftline.eval.training.closed_form import ClosedForm, Floats, add_squares, solve, upper_copy, upper_squares

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

    guide = Guide("closed form", "Hayes & Kanan 2020", "n D² + D³",
                  "the first strong row on frozen features; shrink for few samples")  # fmt: skip

    def solve(self) -> tuple[Floats, ...]:
        """Weights (D, C) and bias (C,)."""
        counts, means = np.where(self.with_samples(), self.moments.counts, 0), self.moments.means()
        total = float(counts.sum())
        square = self.moments.squares[0]
        assert square is not None  # something was learned
        rounding = ROUNDING * float(square.diagonal().mean())
        within = upper_copy(square)  # n Σ
        add_squares(within, means * np.sqrt(counts)[:, None], -1.0, lower=False)
        diagonal = within.diagonal()
        variance = float(np.maximum(diagonal, 0).mean())
        share = oas(upper_squares(within), diagonal, total) if self.shrinkage == "oas" else self.shrinkage
        if share == 1:  # n times the identity times the mean variance
            weights = means.T * (total / (variance + rounding)) if variance + rounding else means.T
        else:
            np.fill_diagonal(within, diagonal + (share * variance + rounding) / (1 - share))
            weights = solve(within, means.T, lower=False) * (total / (1 - share))
        bias = -(means.T * weights).sum(0) / 2
        if self.priors == "observed":
            bias += np.log(np.maximum(counts / total, 1e-300))
        return weights, bias

    def scores(self, x: Array) -> Array:
        """Logarithms of the posterior probabilities, up to a constant."""
        return self.of_classes(x)


def oas(squares: float, diagonal: Floats, n: float) -> float:
    """Oracle approximating shrinkage of n times a covariance (D, D) of n samples, of which the sum of squares and the
    diagonal (D,) are given [Chen et al. 2010, eq. 23; scikit-learn]."""
    mean, variance = squares / len(diagonal) ** 2, float(diagonal.mean()) ** 2
    below = (n + 1) * (mean - variance / len(diagonal))
    return 1.0 if below <= 0 else float(min((mean + variance) / below, 1.0))
