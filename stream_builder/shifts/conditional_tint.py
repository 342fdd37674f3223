"""t, tint that depends on the class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from driftline.stream_builder.shifts.base import Images, Labels, Shift, brighten, check_images


@dataclass(frozen=True)
class ConditionalTint(Shift):
    """Adds `amount` × count to red, green or blue if the label mod 3 is 0, 1 or 2 [Seq-to-Final, code only].

    A conditional shift, saturating at 255.
    """

    code: ClassVar[str] = "t"
    acts_on: ClassVar[str] = "colour"
    fractional: ClassVar[bool] = True
    adds: ClassVar[str] = "amount"
    by_image: ClassVar[bool] = True
    amount: int = 30
    """grey levels"""

    def apply(
        self, x: Images, y: Labels, count: float, n_classes: int, rng: np.random.Generator
    ) -> tuple[Images, Labels]:
        check_images(x)
        out, added = np.empty_like(x), round(self.amount * count)
        for channel in range(3):
            rows = y % 3 == channel
            out[rows] = brighten(x[rows], channel, added)
        return out, y
