"""p, label shift."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from curate.core.errors import IncompatibleStream
from stream_builder.shifts.base import Images, Labels, Shares, Shift


@dataclass(frozen=True)
class LabelShift(Shift):
    """p: even classes lose `percent` % of their share each time, odd ones gain it [Seq-to-Final, code only].

    A shift of P(Y). With the reference's 30 % it ends after three: an even class would have less than nothing.
    """

    letter: ClassVar[str] = "p"
    acts_on: ClassVar[str] = "choice"
    percent: float = 30.0

    def shares(self, times: int, total: int, classes: int, subclasses: int) -> Shares:
        """1 ∓ percent × times of an equal share. Raises IncompatibleStream where an even class would have none."""
        moved = self.percent / 100 * times
        if moved >= 1:
            raise IncompatibleStream(
                f"p came up {times} times and leaves even classes {1 - moved:.0%} of their share.",
                "Expected more than none.",
                "Shorten the sequence or lower p's percent, as in p(10).",
            )
        by_class = np.where(np.arange(classes) % 2 == 0, 1 - moved, 1 + moved)
        return np.repeat(by_class[:, None], max(1, subclasses), 1)

    def apply(
        self, x: Images, y: Labels, times: float, n_classes: int, rng: np.random.Generator
    ) -> tuple[Images, Labels]:
        """Both as given: this shift chooses samples."""
        return x, y
