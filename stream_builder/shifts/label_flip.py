"""L, label flip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stream_builder.shifts.base import Images, Labels, Shift


@dataclass(frozen=True)
class LabelFlip(Shift):
    """L: odd times y → C − 1 − y, even times y → (y + 2) mod C, one after the other [Seq-to-Final, code].

    A label shift in the sense P(Y | X). A fourth flip restores the source labels exactly; `step` other than 2 moves
    that point.
    """

    letter: ClassVar[str] = "L"
    acts_on: ClassVar[str] = "label"
    step: int = 2

    def apply(
        self, x: Images, y: Labels, times: float, n_classes: int, rng: np.random.Generator
    ) -> tuple[Images, Labels]:
        """Images as given; new labels."""
        for time in range(int(times)):
            y = (n_classes - 1 - y) if time % 2 == 0 else (y + self.step) % n_classes
        return x, y
