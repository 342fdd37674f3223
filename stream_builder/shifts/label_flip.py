"""L, label flip."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from driftline.stream_builder.shifts.base import Images, Labels, Shift


@dataclass(frozen=True)
class LabelFlip(Shift):
    """Flips labels alternately: y → C − 1 − y, then y → (y + moved) mod C [Seq-to-Final, code]. Changes P(Y | X).

    The code always moves by `step`, so that a fourth flip restores the source labels, for any step. Here the second
    flip moves by `step`, the fourth by twice as much, and so on: three flips are the code's, and none of the first ten
    restores the labels of ten classes.
    """

    code: ClassVar[str] = "L"
    acts_on: ClassVar[str] = "label"
    step: Annotated[int, Field(ge=1)] = 2
    """classes that the second flip moves on"""
    schedule: Literal["growing", "paper"] = "growing"
    """growing: each second flip moves by `step` more than the one before; paper: by the same"""
    before: int = field(default=0, init=False)
    """flips with other settings, earlier in the sequence"""

    def after(self, before: int) -> LabelFlip:
        """Flips are counted together, whatever their settings: a first one with another step is the second flip."""
        shift = replace(self)
        object.__setattr__(shift, "before", before)
        return shift

    def reference(self) -> LabelFlip:
        return replace(self, schedule="paper")

    def apply(
        self, x: Images, y: Labels, count: float, n_classes: int, rng: np.random.Generator
    ) -> tuple[Images, Labels]:
        """x as given; new labels."""
        for flip in range(self.before, self.before + int(count)):
            moved = self.step * (1 if self.schedule == "paper" else flip // 2 + 1)
            y = (n_classes - 1 - y) if flip % 2 == 0 else (y + moved) % n_classes
        return x, y
