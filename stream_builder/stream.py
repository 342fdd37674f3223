"""Stream: labelled samples in time order. `eval` reads streams only through this module and `measures`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from curate.core.notebook import rendered
from stream_builder import storage
from stream_builder.step import SPLITS, Array, Split, Step, join, pick

__all__ = ["SPLITS", "Array", "Split", "Step", "Stream", "join", "pick"]


@dataclass(frozen=True)
class Stream:
    """Labelled samples in time order."""

    name: str
    """name of the stream"""
    steps: Sequence[Step]
    """time steps, oldest first"""
    classes: Sequence[str]
    """class names; the index is the label"""
    prior: Any = None
    """unlabelled samples from before the first step (N, ...), or None; each step may have more of its own"""
    sha256: str = ""
    """hash of the content, set by `save`; equal streams have equal hashes"""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """what the builder recorded: source, settings, published values"""
    oracle: Step | None = None
    """as many samples of the last step's distribution as all steps have, for an upper bound; only the learner `oracle`
    sees them"""

    def flat(self, split: str = "train") -> Split:
        """All steps' samples of one split, in time order. Raises IncompatibleStream if a step does not have it."""
        return join([step[split] for step in self.steps])

    @property
    def x_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return next(tuple(s.x.shape[1:]) for step in self.steps for s in step.splits.values())

    def save(self, folder: str | Path, facts: Mapping[str, Any] | None = None) -> Stream:
        """Write the stream into a new folder; returns it, opened there, with its hash. facts: instead of its own."""
        storage.write(Path(folder), self.name, self.classes, self.steps, self.oracle, self.prior, facts or self.facts)
        return Stream.load(folder)

    @classmethod
    def load(cls, folder: str | Path) -> Stream:
        """Open a stream folder; arrays are memory-mapped.

        Raises MissingFile, or IntegrityError for an array that is missing or has another length than stream.json says.
        """
        return cls(**storage.read(Path(folder)))

    def verify(self, folder: str | Path) -> None:
        """Hash every array again. Raises IntegrityError naming the first step and split that differs."""
        storage.verify(Path(folder), self.steps, self.oracle, self.prior)

    def _repr_html_(self) -> str:
        """For notebooks."""
        return rendered(self, "stream_builder.notebook:html_of")
