"""Stream: labelled samples in time order. `eval` reads streams only through this module and `measures`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from driftline.curate.core.seeding import time_order
from driftline.curate.foreign.notebook import rendered
from driftline.stream_builder import splitting, storage
from driftline.stream_builder.class_texts import ClassTexts
from driftline.stream_builder.step import SPLITS, Array, Split, Step, join, pick

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SPLITS", "Array", "Split", "Step", "Stream", "join", "pick"]


@dataclass(frozen=True, repr=False)
class Stream(Sequence[Step]):
    """Labelled samples in time order: a sequence of steps."""

    name: str
    """name of the stream"""
    steps: Sequence[Step]
    """time steps, oldest first"""
    classes: Sequence[str]
    """class names; the index is the label"""
    unlabelled: Any = None
    """unlabelled samples from before the first step (N, ...), or None; each step may have more of its own"""
    sha256: str = ""
    """hash of the content, set by `save` and `hashed`; equal streams have equal hashes"""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """what the builder recorded: source, settings, published values"""
    oracle: Step | None = None
    """as many samples of the last step's distribution as all steps have, for an upper bound; only the learner `oracle`
    sees them"""
    class_texts: ClassTexts | None = None
    """vectors of texts about the classes, by the encoder that made the samples' vectors; or None"""

    def __len__(self) -> int:
        return len(self.steps)

    @overload
    def __getitem__(self, number: int) -> Step: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Step]: ...
    def __getitem__(self, number: int | slice) -> Step | Sequence[Step]:
        return self.steps[number]

    def __repr__(self) -> str:
        samples = sum(len(split) for step in self.steps for split in step.splits.values())
        about = f"{len(self.steps)} steps, {samples:,} samples {self.x_shape}, {len(self.classes)} classes"
        return f"<Stream {self.name!r}: {about}>"

    def flat(self, split: str = "train") -> Split:
        """All steps' samples of one split, in time order. Raises IncompatibleStream if a step does not have it."""
        return join([step[split] for step in self.steps])

    def frame(self) -> "pd.DataFrame":
        """One row for each sample, without its features: step, split, id, label, class, time (NaT where not known)."""
        import pandas as pd

        frames = []
        for step in self.steps:
            for name, split in step.splits.items():
                times = (
                    pd.NaT if split.time is None else pd.to_datetime(split.time, unit="s", utc=True, errors="coerce")
                )
                columns = {"id": split.ids, "label": split.y, "class": np.array(self.classes)[split.y], "time": times}
                frames.append(pd.DataFrame({"step": step.name, "split": name, **columns}))
        return pd.concat(frames, ignore_index=True)

    @property
    def x_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return next(tuple(s.x.shape[1:]) for step in self.steps for s in step.splits.values())

    def time_order(self) -> npt.NDArray[np.int64] | None:
        """(N,) positions that put the training samples of all steps in order of time, equal times in an order that is
        drawn; None where the stream's own order is one of time, or where times are not known."""
        times = splitting.train_times(self.steps)
        if times is None or bool((np.diff(times) >= 0).all()):
            return None
        return time_order(times, np.concatenate([step["train"].ids for step in self.steps]))

    def ties(self) -> dict[str, Any] | None:
        """{"share": training samples that have the time of another one, "largest": as many have one time}; None if
        times are not known."""
        return splitting.ties_of(splitting.train_times(self.steps))

    def ties_text(self) -> str:
        """The same as a sentence, with how the builder ordered equal times."""
        times = splitting.train_times(self.steps)
        return splitting.sentence(splitting.ties_of(times), 0 if times is None else len(times), self.facts)

    def shared_with_training(self) -> float | None:
        """Share of all test samples that share an uploader, or are near-duplicates of, a training or validation sample
        of any step; None if the source names neither."""
        return splitting.shared_with_training(self.steps)

    def resplit(self, share: float, rng: np.random.Generator, grouped: bool = True) -> "Stream":
        """A new split into train and test, stratified by step and class; `share` of the samples are test samples.

        grouped: samples of one uploader, and near-duplicates, are on one side in all steps, if they are known. Raises
        IncompatibleStream if a step gets no test sample.
        """
        return replace(self, steps=splitting.resplit(self.steps, share, rng, grouped, self.name))

    @property
    def published_splits(self) -> int:
        """The number K of published splits that all samples have a side in; 0 if the stream has only one split."""
        columns = [split.test_in for step in self.steps for split in step.splits.values()]
        return min((0 if column is None else column.shape[1] for column in columns), default=0)

    def published(self, number: int) -> "Stream":
        """The stream with published split `number`, 0 … K - 1."""
        wholes = [step.everything() for step in self.steps]
        tested = [whole.test_in[:, number] for whole in wholes if whole.test_in is not None]
        return replace(self, steps=list(map(splitting.with_test, self.steps, wholes, tested)))

    def hashed(self) -> "Stream":
        """The same stream with its hash."""
        return self if self.sha256 else replace(self, sha256=storage.described(self)["sha256"])

    def save(self, folder: str | Path, facts: Mapping[str, Any] | None = None) -> "Stream":
        """Write the stream into a new folder; returns it, opened there, with its hash. facts: instead of its own.

        The facts that are written also say what `shared_with_training` and `ties` measure. Raises BadConfig for a
        folder that holds another stream; the same may be written again.
        """
        facts, shared = dict(facts or self.facts), self.shared_with_training()
        facts |= {} if shared is None else {"shared_with_training": round(shared, 4)}
        facts |= {} if (tied := self.ties()) is None else {"ties": tied}
        storage.write(Path(folder), replace(self, facts=facts))
        return Stream.load(folder)

    @classmethod
    def load(cls, folder: str | Path) -> "Stream":
        """Open a stream folder; arrays are memory-mapped.

        Raises MissingFile, or IntegrityError for an array that is missing or has another length than stream.json says.
        """
        return cls(**storage.read(Path(folder)))

    def verify(self, folder: str | Path) -> None:
        """Hash every array again. Raises IntegrityError naming the first step and split that differs."""
        storage.verify(Path(folder), self)

    def verify_once(self, folder: str | Path) -> None:
        """`verify`, unless no file of the folder has another size or time than when it was last verified there; a file
        beside the arrays remembers them. Raises IntegrityError as `verify` does."""
        storage.verify_once(Path(folder), lambda: self.verify(folder))

    def _repr_html_(self) -> str:
        """For notebooks."""
        return rendered(self, "driftline.stream_builder.export.layouts:html_of")
