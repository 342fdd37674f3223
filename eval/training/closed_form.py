"""Base of learners with a closed form: sums over the samples so far, and a solution that is computed from them.

The sums are exact: one sample after the other, batches of any size or all at once give the same sums, up to rounding in
float64. Answers do not depend on the unit of the features.
"""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import NonNegativeFloat

from driftline.curate.core.errors import BadArray
from driftline.eval.learner import Array, Labels, Learner, Task

Floats = npt.NDArray[np.float64]
Squares = Literal["none", "common", "class"]  # which matrices of second moments are kept
BLOCK = 256  # samples that are converted to float64 at once
LEAST = 1e-9  # share of all weights below which a class is forgotten: rounding would decide its mean


@dataclass
class Moments:
    """Weighted sums over samples."""

    counts: Floats
    """(C,) sum of the weights of each class"""
    sums: Floats
    """(C, D) sum of its samples"""
    squares: list[Floats | None] = field(default_factory=list)
    """sums of x xᵀ, lower triangles (D, D): one for all classes, one for each class, or none; None: no sample yet"""

    @classmethod
    def empty(cls, classes: int, width: int, squares: Squares) -> "Moments":
        """Sums of zero."""
        matrices: list[Floats | None] = [None] * {"none": 0, "common": 1, "class": classes}[squares]
        return cls(np.zeros(classes), np.zeros((classes, width)), matrices)

    def fade(self, factor: float) -> None:
        """Multiply all weights."""
        self.counts *= factor
        self.sums *= factor
        for square in self.squares:
            if square is not None:
                square *= factor

    def add(self, x: Floats, y: Labels, weights: Floats | None = None) -> None:
        """Add samples x (n, D), y (n,) with weights (n,), default 1."""
        from scipy.sparse import csr_matrix

        if not len(y):
            return
        w = np.ones(len(y)) if weights is None else weights
        members = csr_matrix((w, (y, np.arange(len(y)))), shape=self.sums.shape[:1] + (len(y),))
        self.sums += np.asarray(members @ x)
        self.counts += np.bincount(y, w, len(self.counts))
        if self.squares:
            rooted = x if weights is None else x * np.sqrt(w)[:, None]
            common = len(self.squares) == 1
            for number in [0] if common else np.unique(y).tolist():
                rows = rooted if common else rooted[y == number]
                self.squares[number] = add_squares(self.squares[number], rows)

    def with_samples(self) -> npt.NDArray[np.bool_]:
        """(C,) classes that have samples."""
        return self.counts > LEAST * self.counts.sum()

    def means(self) -> Floats:
        """(C, D) class means; zeros for unknown classes."""
        return np.where(self.with_samples(), 1 / np.where(self.with_samples(), self.counts, 1), 0)[:, None] * self.sums

    def plus(self, other: "Moments") -> "Moments":
        """The sums over the samples of both."""
        pairs = zip(self.squares, other.squares, strict=True)
        squares = [b if a is None else a if b is None else a + b for a, b in pairs]
        return Moments(self.counts + other.counts, self.sums + other.sums, squares)


def add_squares(total: Floats | None, rows: Floats, factor: float = 1.0) -> Floats:
    """total (D, D) + factor · rowsᵀ rows, the lower triangle, in place if total is in Fortran order."""
    from scipy.linalg.blas import dsyrk

    if total is None:
        total = np.zeros((rows.shape[1], rows.shape[1]), order="F")
    return np.asarray(dsyrk(factor, rows.T, beta=1.0, c=total, lower=1, overwrite_c=1))


def sum_of_squares(square: Floats) -> float:
    """Of all entries of a symmetric matrix (D, D) of which the lower triangle is given and the upper one is zero."""
    entries, diagonal = square.ravel(order="K"), square.diagonal()
    return float(2 * (entries @ entries) - diagonal @ diagonal)


def solve(square: Floats, right: Floats) -> Floats:
    """square⁻¹ right (D, k) for the lower triangle (D, D) of a positive definite matrix, which is overwritten; for a
    matrix of zeros, right. Raises BadArray for one that is not definite."""
    from scipy.linalg.lapack import dpotrf, dpotrs

    if not square.diagonal().any():
        return right
    factor, failed = dpotrf(square, lower=1, clean=0, overwrite_a=1)
    if failed:
        way_out = "Set a larger shrinkage or penalty."
        raise BadArray("A covariance matrix is singular.", "Expected one that shrinkage makes definite.", way_out)
    return np.asarray(dpotrs(factor, right, lower=1)[0])


@dataclass
class ClosedForm(Learner):
    """Keeps sums; solves at the first prediction after it has learned."""

    half_life: NonNegativeFloat = 0.0
    """samples after which the weight of a sample has halved; 0: all samples count the same"""

    squares: ClassVar[Squares] = "common"
    exact_answers: ClassVar[bool] = True
    """whether samples are lifted in float64 for answers, too; else in float32, if they are not stored in more"""

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        self.task, self.rng = task, rng
        self.lifted = self.open_lift(int(np.prod(task.x_shape)))
        self.seen = 0
        squares = self.squares if self.held_out() else "none"
        self.moments = Moments.empty(self.task.n_classes, self.lifted, self.squares)
        self.held = Moments.empty(self.task.n_classes, self.lifted, squares)
        self.solution: tuple[Floats, ...] | None = None

    def held_out(self) -> bool:
        """Whether every fifth sample has sums of its own, on which a setting is chosen."""
        return False

    def open_lift(self, width: int) -> int:
        """Prepare `lift` for samples of that width; returns the width that it gives."""
        return width

    def lift(self, x: Floats) -> Floats:
        """(n, D) → what the sums are over, (n, M); default: the samples."""
        return x

    def learn(self, x: Array, y: Labels) -> None:
        """Add to the sums. Raises BadArray for values that are not finite and for classes that were not declared."""
        flat, y = np.asarray(x).reshape(len(x), -1), np.asarray(y, np.int64)
        if len(y) and int(y.max()) >= self.task.n_classes:
            problem = f"A sample is of class {int(y.max())}."
            raise BadArray(problem, f"Expected one of the {self.task.n_classes} declared ones.", "Declare all classes.")
        decay = 0.5 ** (1 / self.half_life) if self.half_life else 1.0
        for low in range(0, len(y), BLOCK):
            part = self.converted(flat[low : low + BLOCK], self.seen + low)
            n, positions = len(part), self.seen + low + np.arange(len(part))
            if decay < 1:
                self.moments.fade(decay**n)
                self.held.fade(decay**n)
            weights: Floats | None = np.power(decay, positions[-1] - positions) if decay < 1 else None
            apart = positions % 5 == 4 if self.held_out() else np.zeros(n, bool)
            for moments, rows in ((self.moments, ~apart), (self.held, apart)):
                if rows.any():
                    whole = bool(rows.all())
                    x_of, y_of = (part, y[low : low + n]) if whole else (part[rows], y[low : low + n][rows])
                    moments.add(x_of, y_of, weights if weights is None or whole else weights[rows])
        self.seen += len(y)
        self.solution = None

    def converted(self, x: Array, first: int = 0, kind: npt.DTypeLike = np.float64) -> Floats:
        """(n, D) → lifted in a precision; pixels as 0 … 1. Raises BadArray for values that are not finite."""
        rows = np.asarray(x, kind)
        if not np.isfinite(rows).all():
            bad = first + int(np.isfinite(rows).all(1).argmin())
            raise BadArray(f"Sample {bad} holds NaN or infinity.", "Expected finite features.")
        return self.lift(rows / 255 if np.asarray(x).dtype == np.uint8 else rows)

    @abstractmethod
    def solve(self) -> tuple[Floats, ...]:
        """What `of_solution` needs, from the sums."""

    def of_solution(self, x: Floats, solution: tuple[Floats, ...]) -> Floats:
        """Lifted samples (n, M) → scores of the classes (n, C), higher is better; default: x W + b."""
        weights, bias = solution
        return np.asarray(x @ weights + bias)

    def of_classes(self, x: Array) -> Floats:
        """Scores (N, C) of samples; -inf for classes without samples, zeros before anything was learned."""
        return np.concatenate(list(self._blocks(x)))

    def _blocks(self, x: Array) -> Iterator[Floats]:
        """Scores of some samples at a time: those of all would take memory beside what is kept."""
        seen, flat = self.with_samples(), np.asarray(x).reshape(len(x), -1)
        if self.solution is None and seen.any():
            self.solution = self.solve()
        kind = np.result_type(flat.dtype, np.float64 if self.exact_answers else np.float32)
        for low in range(0, len(flat), BLOCK):
            scores = np.zeros((len(flat[low : low + BLOCK]), self.task.n_classes))
            if self.solution is not None:
                lifted = np.asarray(self.converted(flat[low : low + BLOCK], low, kind), np.float64)
                scores[:] = self.of_solution(lifted, self.solution)
                scores[:, ~seen] = -np.inf
            yield scores

    def with_samples(self) -> npt.NDArray[np.bool_]:
        """(C,) classes that have samples."""
        counts = self.moments.counts + self.held.counts
        return np.asarray(counts > LEAST * counts.sum())

    def sureness(self, scores: Floats) -> Floats | None:
        """Scores (n, C) → confidence of the best (n,); default: None, they say nothing of it."""
        return None

    def predict(self, x: Array) -> Labels | tuple[Labels, Array]:
        """The class of the highest score, 0 before anything was learned; how sure it is by `sureness`."""
        pairs = [(scores.argmax(1), self.sureness(scores)) for scores in self._blocks(x)]
        labels = np.concatenate([answers for answers, _ in pairs])
        sure = [values for _, values in pairs if values is not None]
        return (labels, np.concatenate(sure)) if sure else labels
