"""T, red tint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from driftline.stream_builder.shifts.base import Images, Labels, Shift, brighten, check_images


@dataclass(frozen=True)
class Tint(Shift):
    """Adds `amount` × count to the red channel, saturating at 255 [Seq-to-Final, sec. 2.2]. A covariate shift."""

    code: ClassVar[str] = "T"
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
        return brighten(x, 0, round(self.amount * count)), y
