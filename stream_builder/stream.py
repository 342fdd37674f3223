"""Stream: labelled samples in time order, which every evaluation family reads. The only door for `eval`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
    """hash of the content; equal streams have equal hashes"""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """what the builder recorded: source, settings, published values"""
    oracle: Step | None = None
    """data of the last step's distribution, as many samples as the whole sequence has: an upper bound. No learner
    except `oracle` sees them."""

    def flat(self, split: str = "train") -> Split:
        """All steps' samples of one split, in time order."""
        return join([step[split] for step in self.steps])

    @property
    def x_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return next(tuple(s.x.shape[1:]) for step in self.steps for s in step.splits.values())

    def save(self, folder: Path, facts: Mapping[str, Any] | None = None) -> Stream:
        """Write the stream into a new folder; returns it with its hash. `stream.json` is written last."""
        storage.write(self, folder, facts or self.facts)
        return Stream.load(folder)

    @classmethod
    def load(cls, folder: str | Path) -> Stream:
        """Open a stream folder; arrays are memory-mapped.

        Raises MissingFile, or IntegrityError for a shard that is missing or has another length than stream.json says.
        """
        return cls(**storage.read(Path(folder)))

    def verify(self, folder: Path) -> None:
        """Hash every array again. Raises IntegrityError naming the first step and split that differs."""
        storage.verify(self, folder)
