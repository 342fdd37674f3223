"""C, noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stream_builder.shifts.base import Images, Labels, Shift, check_images


@dataclass(frozen=True)
class Corruption(Shift):
    """C: adds to every pixel and channel a draw from {-amount … amount - 1}, once per time [Seq-to-Final, code].

    A covariate shift. Clipped to 0 … 255 after each draw.
    """

    letter: ClassVar[str] = "C"
    acts_on: ClassVar[str] = "noise"
    amount: int = 3  # grey levels

    def apply(
        self, x: Images, y: Labels, times: int, n_classes: int, rng: np.random.Generator
    ) -> tuple[Images, Labels]:
        """New images; labels as given."""
        check_images(x)
        for _ in range(times):
            noise = rng.integers(-self.amount, self.amount, x.shape, dtype=np.int16)
            x = np.clip(x.astype(np.int16) + noise, 0, 255).astype(np.uint8)
        return x, y
