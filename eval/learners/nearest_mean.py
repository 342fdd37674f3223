"""Class means: the nearest, by distance or by cosine."""

from dataclasses import dataclass

import numpy as np

from driftline.curate.core.vectors import unit
from driftline.eval.learner import Guide
from driftline.eval.training.closed_form import ClosedForm, Floats


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
    guide = Guide("closed form", "Mensink et al. 2013", "n D", "the cheapest row; always")

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
