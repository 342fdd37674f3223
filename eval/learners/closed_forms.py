"""Classifiers with a closed form: what they need of all samples so far are running sums."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from driftline.curate.core.vectors import unit
from driftline.eval.learner import Array, Guide, Task
from driftline.eval.training import closed_form
from driftline.eval.training.closed_form import ClosedForm, Floats, Moments


@dataclass
class NearestMean(ClosedForm):
    """Predicts the class whose running mean is nearest (Euclidean).

    Cost: O(D) a sample to learn, O(C D) to predict; memory C × D float64.

    >>> import numpy as np
    >>> from driftline.eval.learner import Task
    >>> learner = NearestMean()
    >>> learner.begin(Task(2, (1,)), np.random.default_rng(0))
    >>> learner.learn(np.array([[0.0], [4.0]]), np.array([0, 1]))
    >>> learner.predict(np.array([[1.0], [3.0]])).tolist()
    [0, 1]
    """

    squares = "none"
    guide = Guide("closed form", "Mensink et al. 2013", "n D", "the cheapest baseline; always")

    def solve(self) -> tuple[Floats, ...]:
        """Means (D, C), and minus half of their squared lengths (C,): the highest score is the nearest mean."""
        means = self.moments.means()
        return means.T, -(means**2).sum(1) / 2


@dataclass
class SimpleCil(ClosedForm):
    """Class means as the weights of a cosine classifier [Zhou et al. 2023, sec. 3.2, eq. 4]."""

    squares = "none"
    guide = Guide("closed form", "Zhou et al. 2023", "n D", "nearest mean by cosine, for features of CLIP and ViT")

    def solve(self) -> tuple[Floats, ...]:
        """Means (C, D) of unit length."""
        means = self.moments.means()
        return (unit(means, means.dtype),)

    def of_solution(self, x: Floats, solution: tuple[Floats, ...]) -> Floats:
        """Cosines (n, C)."""
        return np.asarray(x @ solution[0].T / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12))


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

    guide = Guide("closed form", "Hayes & Kanan 2020", "n D² + D³", "a strong classifier on frozen features")

    def solve(self) -> tuple[Floats, ...]:
        """Weights (D, C) and bias (C,)."""
        counts, means = np.where(self.with_samples(), self.moments.counts, 0), self.moments.means()
        total = float(counts.sum())
        square = self.moments.squares[0]
        assert square is not None  # something was learned
        rounding = ROUNDING * float(square.diagonal().mean())
        within = square.copy(order="F")  # n Σ
        closed_form.add_squares(within, means * np.sqrt(counts)[:, None], -1.0)
        diagonal = within.diagonal()
        variance = float(np.maximum(diagonal, 0).mean())
        share = oas(closed_form.sum_of_squares(within), diagonal, total) if self.shrinkage == "oas" else self.shrinkage
        if share == 1:  # n times the identity times the mean variance
            weights = means.T * (total / (variance + rounding)) if variance + rounding else means.T
        else:
            np.fill_diagonal(within, diagonal + (share * variance + rounding) / (1 - share))
            weights = closed_form.solve(within, means.T) * (total / (1 - share))
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
    square = moments.squares[0].copy(order="F")
    ridge = penalty * square.trace() / total
    if intercept:
        closed_form.add_squares(square, mean[None] * np.sqrt(total), -1.0)
        right = right - mean[:, None] * moments.counts
    np.fill_diagonal(square, square.diagonal() + ridge)
    weights = closed_form.solve(square, right)
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
    guide = Guide("closed form", "McDonnell et al. 2023", "n M² + M³", "often the best; the paper: penalty=held-out")

    def open_lift(self, width: int) -> int:
        """Draw R [sec. 4.2: standard normal]."""
        self.projection = self.rng.normal(size=(width, self.width))
        self.rounded = self.projection.astype(np.float32)
        return self.width

    def lift(self, x: Floats) -> Floats:
        product = x @ (self.rounded if x.dtype == np.float32 else self.projection)
        return np.maximum(product, 0, out=product)


JITTER = 1e-8  # of a correlation matrix


@dataclass
class Fecam(ClosedForm):
    """The class with the least Mahalanobis distance [Goswami et al. 2023, sec. 3, eq. 4–10].

    Features are transformed by a power (Tukey); each covariance is shrunk, then scaled to correlations; the distance is
    between vectors of unit length, as in the authors' code. Cost: O(C D³) after each step, O(C D²) for each prediction.
    """

    covariance: Literal["class", "common"] = "class"
    """one for each class, C D² numbers; "common": that of all samples, D² numbers"""
    tukey: PositiveFloat = 0.5
    """power of the features [eq. 9: 0.5]; of negative ones, that of their size with their sign; 1: unchanged"""
    diagonal: Annotated[float, Field(gt=0)] = 1.0
    """γ₁: the mean variance times this is added to the diagonal [eq. 8: 1]"""
    others: NonNegativeFloat = 1.0
    """γ₂: the mean covariance times this is added to all others [eq. 8: 1; 0 in the authors' code for ViT]"""

    squares = "class"
    guide = Guide("closed form", "Goswami et al. 2023", "n D² + C D³", "classes of different shape, many samples each")

    def lift(self, x: Floats) -> Floats:
        return np.sign(x) * np.abs(x) ** self.tukey

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        super().begin(task, rng)
        if self.covariance == "common":
            self.moments = Moments.empty(self.task.n_classes, self.lifted, "common")

    def solve(self) -> tuple[Floats, ...]:
        """Means (C, D) of unit length, and the inverse of each class's correlations (D, D)."""
        means = self.moments.means()
        directions = unit(means, means.dtype)
        seen = np.flatnonzero(self.with_samples())
        if self.covariance == "common":
            total, all_means = self.moments.counts.sum(), self.moments.sums.sum(0)[None]
            return directions, self._inverse(self.moments.squares[0], total, all_means / total)
        inverses = [
            self._inverse(self.moments.squares[k], self.moments.counts[k], means[k][None])
            if k in seen
            else np.zeros((0, 0))
            for k in range(len(means))
        ]
        return directions, *inverses

    def _inverse(self, square: Floats | None, n: float, mean: Floats) -> Floats:
        """Inverse (D, D) of the shrunk correlations of samples with sums of squares and this mean; the identity for a
        single sample."""
        width = self.lifted
        if square is None or n <= 1:
            return np.eye(width)
        lower = closed_form.add_squares(square.copy(order="F"), mean * np.sqrt(n), -1.0) / (n - 1)
        covariance = lower + np.tril(lower, -1).T
        variance = covariance.trace() / width
        other = (covariance.sum() - covariance.trace()) / max(1, width * (width - 1))
        covariance += self.others * other
        covariance[np.arange(width), np.arange(width)] += self.diagonal * variance - self.others * other
        deviations = np.sqrt(np.maximum(covariance.diagonal(), 0))
        if not deviations.all():
            return np.eye(width)
        covariance /= deviations * deviations[:, None]
        covariance[np.arange(width), np.arange(width)] += JITTER
        return closed_form.solve(np.asfortranarray(covariance), np.eye(width))

    def of_solution(self, x: Floats, solution: tuple[Floats, ...]) -> Floats:
        """Negative distances (n, C)."""
        x = unit(x, x.dtype)
        means, *inverses = solution
        scores = np.full((len(x), len(means)), -np.inf)
        for k in np.flatnonzero(self.with_samples()).tolist():
            off = x - means[k]
            scores[:, k] = -((off @ inverses[0 if len(inverses) == 1 else k]) * off).sum(1)
        return scores
