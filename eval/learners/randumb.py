"""RanDumb: random Fourier features and LDA, no learned representation beyond the given one [Prabhu et al. 2024]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from driftline.eval.learner import Guide
from driftline.eval.learners.slda import Slda
from driftline.eval.training.closed_form import FourierLift


@dataclass
class Randumb(FourierLift, Slda):
    """Nearest class mean by Mahalanobis distance in random Fourier features [Prabhu et al. 2024, sec. 3, fig. 2].

    As the authors' code: LDA with OAS shrinkage and observed class probabilities. Its kernel is scaled by the variance
    of the data; here samples have unit length, so that nothing depends on the first of them.
    """

    shrinkage: Annotated[float, Field(gt=0, le=1)] | Literal["oas"] = "oas"
    priors: Literal["uniform", "observed"] = "observed"
    width: PositiveInt = 1000
    """random features M; the paper has 25,000, of which the matrix of second moments takes 5 GB"""

    guide = Guide("closed form", "Prabhu et al. 2024", "n M² + M³", "whether a learned representation is needed at all")
