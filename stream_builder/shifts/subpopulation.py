"""s, sub-population shift."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from driftline.curate.core.errors import IncompatibleStream
from driftline.stream_builder.shifts.base import Shares, Shift

TABLE = ((1 / 2, 1 / 2, 0, 0, 0), (1 / 3, 1 / 3, 1 / 3, 0, 0), (0, 1 / 3, 1 / 3, 1 / 3, 0), (0, 0, 1 / 3, 1 / 3, 1 / 3))


@dataclass(frozen=True)
class Subpopulation(Shift):
    """Which sub-classes a class consists of: two of five, then three that move on [Seq-to-Final, sec. 2.2; code].

    ½ ½ 0 0 0 → ⅓ ⅓ ⅓ 0 0 → 0 ⅓ ⅓ ⅓ 0 → 0 0 ⅓ ⅓ ⅓, in the dataset's order of sub-classes. A covariate shift within
    classes.
    """

    code: ClassVar[str] = "s"
    acts_on: ClassVar[str] = "sampling"

    def shares(self, count: float, total: float, classes: int, subclasses: int) -> Shares:
        """Row `count` of the table. Raises IncompatibleStream after its end, and for datasets without five sub-classes
        per class."""
        if subclasses != 5:
            raise IncompatibleStream(
                f"s samples from five sub-classes; the dataset has {subclasses or 'none'} per class.",
                "Expected a dataset like CIFAR-100 with coarse labels.",
                "Use --base cifar100 --labels coarse.",
            )
        if count >= len(TABLE):
            raise IncompatibleStream(
                f"s occurs {count:g} times.", f"The table ends after {len(TABLE) - 1}.", "Shorten the sequence."
            )
        return np.tile(np.array(TABLE[int(count)]), (classes, 1))
