"""R, rotation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stream_builder.shifts.base import Images, Labels, Shift, rotate


@dataclass(frozen=True)
class Rotation(Shift):
    """R: rotates counter-clockwise by `degrees` × times, nearest pixel, black corners [Seq-to-Final, sec. 2.2].

    A covariate shift. Rendered once from the original image, so that 3 × 30° keeps its full corners.
    """

    letter: ClassVar[str] = "R"
    acts_on: ClassVar[str] = "geometry"
    smooth: ClassVar[bool] = True
    degrees: float = 30.0

    def apply(
        self, x: Images, y: Labels, times: float, n_classes: int, rng: np.random.Generator
    ) -> tuple[Images, Labels]:
        """New images; labels as given."""
        return rotate(x, self.degrees * times), y
