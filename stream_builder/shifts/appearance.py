"""A, classes that appear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from driftline.curate.core.errors import IncompatibleStream
from driftline.stream_builder.shifts.base import Shares, Shift, of_classes


@dataclass(frozen=True)
class Appearance(Shift):
    """`classes` more classes appear each time; the dataset's last classes come last. Changes P(Y)."""

    code: ClassVar[str] = "A"
    acts_on: ClassVar[str] = "sampling"
    adds: ClassVar[str] = "classes"
    classes: Annotated[int, Field(ge=1)] = 1
    """classes that appear each time"""

    def shares(self, count: float, total: float, classes: int, subclasses: int) -> Shares:
        """0 for the classes that have not appeared. Raises IncompatibleStream if the source step has no class left."""
        present = classes - self.classes * (total - count)
        if classes - self.classes * total < 1:
            raise IncompatibleStream(
                f"A takes {self.classes * total:g} of {classes} classes: none is left for the source step.",
                "Expected at least one.",
                "Shorten the sequence or lower the number.",
            )
        return of_classes(np.arange(classes) < present, subclasses)
