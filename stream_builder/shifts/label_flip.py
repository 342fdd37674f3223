"""L, label flip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stream_builder.shifts.base import Images, Labels, Shift


@dataclass(frozen=True)
class LabelFlip(Shift):
    """Flips labels alternately: y → C − 1 − y, then y → (y + 2) mod C [Seq-to-Final, code].

    Changes P(Y | X). With the default `step` the fourth flip restores the source labels.
    """

    code: ClassVar[str] = "L"
    acts_on: ClassVar[str] = "label"
    step: int = 2
    """classes that every second flip moves on"""

    def apply(
        self, x: Images, y: Labels, count: float, n_classes: int, rng: np.random.Generator
    ) -> tuple[Images, Labels]:
        """x as given; new labels."""
        for flip in range(int(count)):
            y = (n_classes - 1 - y) if flip % 2 == 0 else (y + self.step) % n_classes
        return x, y
