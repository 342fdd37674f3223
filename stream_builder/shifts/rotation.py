"""R, rotation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from driftline.stream_builder.shifts.base import Images, Labels, Shift, rotate


@dataclass(frozen=True)
class Rotation(Shift):
    """Rotates counter-clockwise by `degrees` × count, nearest pixel, black corners [Seq-to-Final, sec. 2.2].

    A covariate shift. Rendered once from the original image, so that 3 × 30° does not cut corners twice.
    """

    code: ClassVar[str] = "R"
    acts_on: ClassVar[str] = "geometry"
    fractional: ClassVar[bool] = True
    adds: ClassVar[str] = "degrees"
    by_image: ClassVar[bool] = True
    degrees: float = 30.0
    """angle, counter-clockwise"""

    def apply(
        self, x: Images, y: Labels, count: float, n_classes: int, rng: np.random.Generator
    ) -> tuple[Images, Labels]:
        return rotate(x, self.degrees * count), y
