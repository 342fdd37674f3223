"""What a learner may see at test time: samples, no labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from driftline.curate.core.errors import BadPlugin


@dataclass(frozen=True)
class Unlabelled:
    """A batch of test samples."""

    x: Any
    """(N, ...) samples"""
    learner: str
    """who gets it"""

    def __len__(self) -> int:
        return len(self.x)

    @property
    def y(self) -> Any:
        """Raises BadPlugin, which names the learner: there are no labels at test time."""
        problem = f"{self.learner} asked for the labels of test samples."
        raise BadPlugin(problem, "Expected adaptation from samples alone.", "Use its x.")
