"""s, sub-population."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from curate.core.errors import IncompatibleStream
from stream_builder.shifts.base import Images, Labels, Shares, Shift

TABLE = ((1 / 2, 1 / 2, 0, 0, 0), (1 / 3, 1 / 3, 1 / 3, 0, 0), (0, 1 / 3, 1 / 3, 1 / 3, 0), (0, 0, 1 / 3, 1 / 3, 1 / 3))


@dataclass(frozen=True)
class Subpopulation(Shift):
    """s: which sub-classes a class is made of: two of five, then three, which move on [Seq-to-Final, sec. 2.2; code].

    ½ ½ 0 0 0 → ⅓ ⅓ ⅓ 0 0 → 0 ⅓ ⅓ ⅓ 0 → 0 0 ⅓ ⅓ ⅓, in the base's order of sub-classes. A covariate shift within classes.
    """

    letter: ClassVar[str] = "s"
    acts_on: ClassVar[str] = "choice"

    def shares(self, times: int, total: int, classes: int, subclasses: int) -> Shares:
        """The table's row for `times`. Raises IncompatibleStream beyond it and for bases without five sub-classes a
        class."""
        if subclasses != 5:
            raise IncompatibleStream(
                f"s chooses among five sub-classes; the base has {subclasses or 'none'} a class.",
                "Expected a base like CIFAR-100 with coarse labels.",
                "Use --base cifar100 --labels coarse.",
            )
        if times >= len(TABLE):
            raise IncompatibleStream(
                f"s came up {times} times.", f"The table ends after {len(TABLE) - 1}.", "Shorten the sequence."
            )
        return np.tile(np.array(TABLE[times]), (classes, 1))

    def apply(
        self, x: Images, y: Labels, times: float, n_classes: int, rng: np.random.Generator
    ) -> tuple[Images, Labels]:
        """Both as given: this shift chooses samples."""
        return x, y
