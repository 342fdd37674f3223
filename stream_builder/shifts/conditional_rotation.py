"""r, rotation that depends on the class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stream_builder.shifts.base import Images, Labels, Shift, check_images, rotate


@dataclass(frozen=True)
class ConditionalRotation(Shift):
    """r: even classes turn counter-clockwise, odd ones clockwise, by `degrees` × times [Seq-to-Final, sec. 2.2].

    A conditional shift: P(X | Y) moves differently for different Y. Classes are those before any label flip.
    """

    letter: ClassVar[str] = "r"
    acts_on: ClassVar[str] = "geometry"
    smooth: ClassVar[bool] = True
    degrees: float = 30.0

    def apply(
        self, x: Images, y: Labels, times: float, n_classes: int, rng: np.random.Generator
    ) -> tuple[Images, Labels]:
        """New images; labels as given."""
        check_images(x)
        out, even = np.empty_like(x), y % 2 == 0
        out[even], out[~even] = rotate(x[even], self.degrees * times), rotate(x[~even], -self.degrees * times)
        return out, y
