"""A dataset: labelled samples without time, and how it is opened."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from driftline.stream_builder.shifts.base import Labels
from driftline.stream_builder.stream import Array


@dataclass(frozen=True, repr=False)
class Samples:
    """The training or the test samples of a dataset."""

    x: Any
    """(N, H, W, 3) uint8 images, as an array or lazy; (N, D) float features; or (N,) texts"""
    y: Labels
    """(N,) classes from 0"""
    index: Array
    """(N,) the number of each sample in the dataset; it becomes the sample's id in the stream"""
    subclass: Labels | None = None
    """(N,) number of the sub-class within the class, from 0, or None"""

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        return f"<Samples: {len(self):,} of {tuple(self.x.shape[1:])}>"


@dataclass(frozen=True, repr=False)
class Dataset:
    """Labelled samples without time."""

    name: str
    """becomes part of the stream's name"""
    train: Samples
    """samples for training and validation splits"""
    test: Samples
    """samples for test splits"""
    classes: list[str]
    """class names; the index is the label"""
    draws: Mapping[str, Array] = field(default_factory=dict)
    """published draws by name (`t0_train` …: values of `index`, in order), if there are any"""

    def __repr__(self) -> str:
        about = f"{len(self.train):,} training and {len(self.test):,} test samples, {len(self.classes)} classes"
        return f"<Dataset {self.name!r}: {about}>"

    @property
    def subclasses(self) -> int:
        """Sub-classes of each class; 0 if it has none."""
        return 0 if self.train.subclass is None else int(self.train.subclass.max()) + 1


@dataclass(frozen=True)
class Options:
    """How to open a dataset."""

    data_dir: Path | None = None
    """folder with the files of named datasets (default: data)"""
    labels: str | None = None
    """"fine" or "coarse", for datasets that have both (None: coarse)"""
    size: int = 32
    """edge of decoded images, in pixels"""
    download: bool = False
    """download a named dataset that is not in `data_dir`"""
