"""P, prior drift."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from driftline.stream_builder.shifts.base import Shares, Shift, of_classes


@dataclass(frozen=True)
class PriorDrift(Shift):
    """Classes become imbalanced: the share of class c is (1 + c)^(−exponent × count), a power law. Changes P(Y).

    Any other schedule is a table: `--priors`.
    """

    code: ClassVar[str] = "P"
    acts_on: ClassVar[str] = "sampling"
    adds: ClassVar[str] = "exponent"
    exponent: float = 0.5
    """exponent of the power law, added each time"""

    def shares(self, count: float, total: float, classes: int, subclasses: int) -> Shares:
        return of_classes((1.0 + np.arange(classes)) ** (-self.exponent * count), subclasses)
