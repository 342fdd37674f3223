"""Nearest class mean [Mensink et al. 2013]."""

from __future__ import annotations

from dataclasses import dataclass

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
