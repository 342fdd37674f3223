"""SimpleCIL: the class mean with the largest cosine, on the features of a frozen network [Zhou et al. 2023]."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from driftline.curate.core.vectors import unit
from driftline.eval.learner import Guide
from driftline.eval.training.closed_form import ClosedForm, Floats


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
