"""D, classes that go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from curate.core.errors import IncompatibleStream
from stream_builder.shifts.base import Images, Labels, Shares, Shift


@dataclass(frozen=True)
class Disappearance(Shift):
    """D: `classes` classes disappear each time, the first of the base first. A shift of P(Y)."""

    letter: ClassVar[str] = "D"
    acts_on: ClassVar[str] = "choice"
    classes: int = 1

    def shares(self, times: int, total: int, classes: int, subclasses: int) -> Shares:
        """None for the classes that went. Raises IncompatibleStream where no class is left."""
        gone = self.classes * times
        if gone >= classes:
            raise IncompatibleStream(
                f"D({self.classes}) came up {times} times and leaves no class of {classes}.",
                "Expected at least one.",
                "Shorten the sequence or lower its number.",
            )
        by_class = (np.arange(classes) >= gone).astype(np.float64)
        return np.repeat(by_class[:, None], max(1, subclasses), 1)

    def apply(
        self, x: Images, y: Labels, times: float, n_classes: int, rng: np.random.Generator
    ) -> tuple[Images, Labels]:
        """Both as given: this shift chooses samples."""
        return x, y
