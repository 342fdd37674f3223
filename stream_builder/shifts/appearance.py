"""A, new classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from curate.core.errors import IncompatibleStream
from stream_builder.shifts.base import Images, Labels, Shares, Shift


@dataclass(frozen=True)
class Appearance(Shift):
    """A: `classes` further classes appear each time; the last of the base are those that come. A shift of P(Y)."""

    letter: ClassVar[str] = "A"
    acts_on: ClassVar[str] = "choice"
    classes: int = 1

    def shares(self, times: int, total: int, classes: int, subclasses: int) -> Shares:
        """None for the classes that are still to come. Raises IncompatibleStream where the source would have none."""
        there = classes - self.classes * (total - times)
        if classes - self.classes * total < 1:
            raise IncompatibleStream(
                f"A({self.classes}) comes up {total} times and leaves the source no class of {classes}.",
                "Expected at least one.",
                "Shorten the sequence or lower its number.",
            )
        by_class = (np.arange(classes) < there).astype(np.float64)
        return np.repeat(by_class[:, None], max(1, subclasses), 1)

    def apply(
        self, x: Images, y: Labels, times: float, n_classes: int, rng: np.random.Generator
    ) -> tuple[Images, Labels]:
        """Both as given: this shift chooses samples."""
        return x, y
