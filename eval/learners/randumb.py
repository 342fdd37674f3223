"""RanDumb: random Fourier features and LDA, no learned representation beyond the given one [Prabhu et al. 2024]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from eval.learners.ridge import drawn, fourier
from eval.learners.slda import Slda
from eval.training.closed_form import Floats


@dataclass
class Randumb(Slda):
    """Nearest class mean by Mahalanobis distance in random Fourier features [Prabhu et al. 2024, sec. 3, fig. 2].

    As the authors' code: LDA with OAS shrinkage and observed class probabilities. Its kernel is scaled by the variance
    of the data; here samples have unit length, so that nothing depends on the first of them.
    """

    shrinkage: Annotated[float, Field(gt=0, le=1)] | Literal["oas"] = "oas"
    priors: Literal["uniform", "observed"] = "observed"
    width: PositiveInt = 1000
    """random features M; the paper has 25,000, of which the matrix of second moments takes 5 GB"""
    gamma: PositiveFloat = 1.0
    """of the kernel exp(-γ |x - x'|²) between samples of unit length"""

    def open_lift(self, width: int) -> int:
        """Draw the frequencies."""
        self.frequencies, self.phases = drawn(width, self.width, self.gamma, self.rng)
        return self.width

    def lift(self, x: Floats) -> Floats:
        """√(2/M) cos(x Ω + b)."""
        return fourier(x, self.frequencies, self.phases)
