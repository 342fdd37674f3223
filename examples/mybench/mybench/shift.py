from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from driftline.ext import Images, Labels, Shift, check_images


@dataclass(frozen=True)
class Fade(Shift):
    """Colours fade towards grey."""

    code: ClassVar[str] = "fade"
    acts_on: ClassVar[str] = "colour"
    fractional: ClassVar[bool] = True
    share: float = 0.3
    """share of the colour that is lost each time"""

    def apply(
        self, x: Images, y: Labels, count: float, n_classes: int, rng: np.random.Generator
    ) -> tuple[Images, Labels]:
        check_images(x)
        grey = x.mean(-1, keepdims=True)
        return np.round(grey + (x - grey) * (1 - self.share) ** count).astype(np.uint8), y
