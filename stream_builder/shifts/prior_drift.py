"""P, prior drift."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stream_builder.shifts.base import Images, Labels, Shares, Shift


@dataclass(frozen=True)
class PriorDrift(Shift):
    """P: classes become unequal: the share of the c-th is (1 + c)^(−exponent × times), as uploads of real things are.

    A shift of P(Y). Other schedules are given as a table: `--priors`.
    """

    letter: ClassVar[str] = "P"
    acts_on: ClassVar[str] = "choice"
    exponent: float = 0.5

    def shares(self, times: int, total: int, classes: int, subclasses: int) -> Shares:
        """A power law over the classes' ranks."""
        by_class = (1.0 + np.arange(classes)) ** (-self.exponent * times)
        return np.repeat(by_class[:, None], max(1, subclasses), 1)

    def apply(
        self, x: Images, y: Labels, times: float, n_classes: int, rng: np.random.Generator
    ) -> tuple[Images, Labels]:
        """Both as given: this shift chooses samples."""
        return x, y
