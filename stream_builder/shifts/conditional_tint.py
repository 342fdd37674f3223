"""t, tint that depends on the class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stream_builder.shifts.base import Images, Labels, Shift, check_images


@dataclass(frozen=True)
class ConditionalTint(Shift):
    """t: adds `amount` × times to red, green or blue where label mod 3 = 0, 1, 2 [Seq-to-Final, code only]."""

    letter: ClassVar[str] = "t"
    acts_on: ClassVar[str] = "colour"
    smooth: ClassVar[bool] = True
    amount: int = 30  # grey levels

    def apply(
        self, x: Images, y: Labels, times: float, n_classes: int, rng: np.random.Generator
    ) -> tuple[Images, Labels]:
        """New images; labels as given."""
        check_images(x)
        out = x.copy()
        for channel in range(3):
            here = y % 3 == channel
            out[here, :, :, channel] = np.clip(
                x[here, :, :, channel].astype(np.int32) + round(self.amount * times), 0, 255
            )
        return out, y
