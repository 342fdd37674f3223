"""FeCAM: Mahalanobis distance with a covariance for each class [Goswami et al. 2023]."""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat

from driftline.curate.core.vectors import unit
from driftline.eval.learner import Guide, Task
from driftline.eval.training.closed_form import ClosedForm, Floats, Moments, add_squares, solve

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
    guide = Guide("closed form", "Goswami et al. 2023", "n D² + C D³",
                  "classes of different shape, with many samples each; slow for many")  # fmt: skip

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
        lower = add_squares(square.copy(order="F"), mean * np.sqrt(n), -1.0) / (n - 1)
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
        return solve(np.asfortranarray(covariance), np.eye(width))

    def of_solution(self, x: Floats, solution: tuple[Floats, ...]) -> Floats:
        """Negative distances (n, C)."""
        x = unit(x, x.dtype)
        means, *inverses = solution
        scores = np.full((len(x), len(means)), -np.inf)
        for k in np.flatnonzero(self.with_samples()).tolist():
            off = x - means[k]
            scores[:, k] = -((off @ inverses[0 if len(inverses) == 1 else k]) * off).sum(1)
        return scores
