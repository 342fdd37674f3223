"""r, rotation that depends on the class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from driftline.stream_builder.shifts.base import Images, Labels, check_images, rotate
from driftline.stream_builder.shifts.rotation import Rotation


@dataclass(frozen=True)
class ConditionalRotation(Rotation):
    """Rotates even classes counter-clockwise and odd ones clockwise by `degrees` × count [Seq-to-Final, sec. 2.2].

    A conditional shift: P(X | Y) moves differently for different Y. Classes are those before any label flip.
    """

    code: ClassVar[str] = "r"

    def apply(
        self, x: Images, y: Labels, count: float, n_classes: int, rng: np.random.Generator
    ) -> tuple[Images, Labels]:
        check_images(x)
        out, even = np.empty_like(x), y % 2 == 0
        out[even], out[~even] = rotate(x[even], self.degrees * count), rotate(x[~even], -self.degrees * count)
        return out, y
