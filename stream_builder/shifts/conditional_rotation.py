"""r, rotation that depends on the class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from driftline.stream_builder.shifts.base import Images, Labels, Shift, check_images, rotate


@dataclass(frozen=True)
class ConditionalRotation(Shift):
    """Rotates even classes counter-clockwise and odd ones clockwise by `degrees` × count [Seq-to-Final, sec. 2.2].

    A conditional shift: P(X | Y) moves differently for different Y. Classes are those before any label flip.
    """

    code: ClassVar[str] = "r"
    acts_on: ClassVar[str] = "geometry"
    fractional: ClassVar[bool] = True
    adds: ClassVar[str] = "degrees"
    by_image: ClassVar[bool] = True
    degrees: float = 30.0
    """angle"""

    def apply(
        self, x: Images, y: Labels, count: float, n_classes: int, rng: np.random.Generator
    ) -> tuple[Images, Labels]:
        check_images(x)
        out, even = np.empty_like(x), y % 2 == 0
        out[even], out[~even] = rotate(x[even], self.degrees * count), rotate(x[~even], -self.degrees * count)
        return out, y
