"""Ridge regression on the labels, recursive: sums of x xᵀ and x yᵀ over all samples so far, and one solution."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt

from driftline.curate.core.vectors import unit
from driftline.eval.learner import Guide
from driftline.eval.training.closed_form import ClosedForm, Floats, Moments, add_squares, solve, upper_copy

PENALTIES = tuple(10.0**power for power in range(-4, 5))  # of "held-out"


@dataclass
class Ridge(ClosedForm):
    """Least squares on one-hot labels with an L2 penalty: W = (XᵀX + λI)⁻¹ XᵀY [Hoerl & Kennard 1970].

    With `half_life` it is recursive least squares with a forgetting factor [Haykin 2002, sec. 9.3], in the form of
    sums. Features count in units of their root mean square length, all of them so far.
    """

    penalty: PositiveFloat | Literal["held-out"] = 0.1
    """λ, for features of root mean square length 1; "held-out": of 10⁻⁴ … 10⁴ the one with the least squared error on
    every fifth sample, when all others are learned [RanPAC, app. C]; from 0.1 on, smaller or larger ones are tried as
    long as the error falls"""
    intercept: bool = True
    """a bias without penalty"""

    guide = Guide("closed form", "Hoerl & Kennard 1970", "n D² + D³", "a linear head without a learning rate")

    def held_out(self) -> bool:
        return self.penalty == "held-out"

    def solve(self) -> tuple[Floats, ...]:
        """Weights (D, C) and bias (C,)."""
        if self.penalty != "held-out":
            return fitted(self.moments, self.penalty, self.intercept)
        self.chosen = 1.0
        if self.moments.counts.any() and self.held.counts.any():
            self.chosen = PENALTIES[self._downhill(PENALTIES.index(0.1))]
        return fitted(self.moments.plus(self.held), self.chosen, self.intercept)

    def _downhill(self, place: int) -> int:
        """The penalty whose neighbours have no less error on the held-out samples. A penalty costs O(M³)."""
        errors: dict[int, float] = {}
        while True:
            nearby = [i for i in (place, place - 1, place + 1) if 0 <= i < len(PENALTIES)]
            for i in nearby:
                if i not in errors:
                    errors[i] = error(self.held, *fitted(self.moments, PENALTIES[i], self.intercept))
            best = min(nearby, key=errors.__getitem__)
            if best == place:
                return place
            place = best

    def sureness(self, scores: Floats) -> Floats | None:
        """Share of the answer in the positive scores, which estimate probabilities; 1 / C if none is positive."""
        total, unknown = np.maximum(scores, 0).sum(1), np.full(len(scores), 1 / scores.shape[1])
        return np.asarray(np.divide(scores.max(1), total, out=unknown, where=total > 0))

    def metadata(self) -> dict[str, Any]:
        """The penalty of the last solution, if it is chosen."""
        return {"penalty": self.chosen} if hasattr(self, "chosen") else {}


def fitted(moments: Moments, penalty: float, intercept: bool) -> tuple[Floats, Floats]:
    """Weights (D, C) and bias (C,) of ridge regression on one-hot labels. penalty: for features of root mean square
    length 1."""
    total, right = moments.counts.sum(), moments.sums.T
    assert moments.squares[0] is not None  # something was learned
    mean = moments.sums.sum(0) / total
    square = upper_copy(moments.squares[0])
    ridge = penalty * square.trace() / total
    if intercept:
        add_squares(square, mean[None] * np.sqrt(total), -1.0, lower=False)
        right = right - mean[:, None] * moments.counts
    np.fill_diagonal(square, square.diagonal() + ridge)
    weights = solve(square, right, lower=False)
    return weights, (moments.counts / total - mean @ weights) * intercept


def error(moments: Moments, weights: Floats, bias: Floats) -> float:
    """Sum of squared errors on the samples of `moments`, from their sums alone."""
    from scipy.linalg.blas import dsymm

    assert moments.squares[0] is not None  # it has samples
    quadratic = (weights * dsymm(1.0, moments.squares[0], weights, lower=1)).sum()
    crossed = (weights.T * moments.sums).sum() + bias @ moments.counts
    total = moments.counts.sum()
    return float(quadratic + 2 * bias @ (weights.T @ moments.sums.sum(0)) + total * (bias @ bias) - 2 * crossed + total)


@dataclass
class RandomFeatures(Ridge):
    """Kernel ridge regression by random Fourier features √(2/M) cos(x Ω + b) of samples of unit length [Rahimi & Recht
    2007, alg. 1]."""

    width: PositiveInt = 1000
    """random features M"""
    gamma: PositiveFloat = 1.0
    """of the kernel exp(-γ |x - x'|²) between samples of unit length"""

    guide = Guide("closed form", "Rahimi & Recht 2007", "n M² + M³", "as ridge, if classes are not linear")

    def open_lift(self, width: int) -> int:
        """Draw frequencies (D, M) and phases (M,)."""
        self.frequencies = self.rng.normal(0, np.sqrt(2 * self.gamma), (width, self.width))
        self.phases = self.rng.uniform(0, 2 * np.pi, self.width)
        return self.width

    def lift(self, x: Floats) -> Floats:
        return np.asarray(np.sqrt(2 / self.width) * np.cos(unit(x, x.dtype) @ self.frequencies + self.phases))


@dataclass
class Ranpac(Ridge):
    """Ridge regression on relu(x R), R random: RanPAC without its adapter [McDonnell et al. 2023, sec. 4.2, alg. 1].

    The paper chooses the penalty on held-out samples after each step: penalty=held-out, four to ten times as expensive.
    """

    intercept: bool = False
    width: Annotated[int, Field(ge=1)] = 1000
    """random features M; the paper has 10,000, of which the matrix of second moments takes 800 MB; twice to solve"""

    exact_answers = False
    guide = Guide("closed form", "McDonnell et al. 2023", "n M² + M³",
                  "often the best closed form; penalty=held-out as in the paper")  # fmt: skip

    def open_lift(self, width: int) -> int:
        """Draw R [sec. 4.2: standard normal]."""
        self.projection = self.rng.normal(size=(width, self.width))
        self.rounded = self.projection.astype(np.float32)
        return self.width

    def lift(self, x: Floats) -> Floats:
        product = x @ (self.rounded if x.dtype == np.float32 else self.projection)
        return np.maximum(product, 0, out=product)
