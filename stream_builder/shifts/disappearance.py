"""D, classes that disappear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from driftline.curate.core.errors import IncompatibleStream
from driftline.stream_builder.shifts.base import Shares, Shift, of_classes


@dataclass(frozen=True)
class Disappearance(Shift):
    """`classes` classes disappear each time, the dataset's first classes first. Changes P(Y)."""

    code: ClassVar[str] = "D"
    acts_on: ClassVar[str] = "sampling"
    adds: ClassVar[str] = "classes"
    classes: Annotated[int, Field(ge=1)] = 1
    """classes that disappear each time"""

    def shares(self, count: float, total: float, classes: int, subclasses: int) -> Shares:
        """0 for the classes that have disappeared. Raises IncompatibleStream if no class is left."""
        gone = self.classes * count
        if gone >= classes:
            raise IncompatibleStream(
                f"D takes {gone:g} classes: none of {classes} is left.",
                "Expected at least one.",
                "Shorten the sequence or lower the number.",
            )
        return of_classes(np.arange(classes) >= gone, subclasses)
