"""p, label shift."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from driftline.curate.core.errors import IncompatibleStream
from driftline.stream_builder.shifts.base import Shares, Shift, of_classes


@dataclass(frozen=True)
class LabelShift(Shift):
    """Even classes lose `percent` % of an equal share each time; odd classes gain what they lose, in equal parts
    [Seq-to-Final, code only].

    Changes P(Y). With other shifts of the sampling, or natural class frequencies, the factors multiply. With the
    reference's 30 % it can occur three times: at the fourth, even classes have less than nothing.
    """

    code: ClassVar[str] = "p"
    acts_on: ClassVar[str] = "sampling"
    adds: ClassVar[str] = "percent"
    percent: Annotated[float, Field(ge=0, lt=100)] = 30.0
    """percent of an equal share"""

    def shares(self, count: float, total: float, classes: int, subclasses: int) -> Shares:
        """Even classes: 1 − percent × count of an equal share. Raises IncompatibleStream if they have no share left."""
        even = (classes + 1) // 2
        if classes < 2:
            raise IncompatibleStream(
                "p moves shares between classes; the dataset has one class.", "Expected two or more."
            )
        moved = self.percent / 100 * count
        if moved >= 1:
            raise IncompatibleStream(
                f"p takes {moved:.0%} of the even classes' share.",
                "Expected less than 100 %.",
                "Shorten the sequence or lower the percentage, as in p(10).",
            )
        by_class = np.where(np.arange(classes) % 2 == 0, 1 - moved, 1 + moved * even / (classes - even))
        return of_classes(by_class, subclasses)
