"""Task and Learner: what every method under every protocol is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadPlugin
from driftline.stream_builder.class_texts import ClassTexts

Labels = npt.NDArray[np.int64]
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Task:
    """What a protocol discloses to every learner before the first step."""

    n_classes: int
    """number of classes C"""
    x_shape: tuple[int, ...]
    """shape of one sample; () for texts"""
    steps: int | None = None
    """number of time steps, if the protocol discloses it"""
    batch: int | None = None
    """samples that a stream brings at a time"""
    updates: float | None = None
    """budget: updates of the weights (forward and backward pass over a batch) per batch of the stream; None: no
    budget"""
    classes: tuple[str, ...] = ()
    """names of the classes, if the protocol discloses them"""
    rules: Any = None
    """what a protocol prescribes for its methods: network, grid of settings, validation; None: nothing"""
    seed: int = 0
    """seed of the run, the same for every learner"""
    store: Path | None = None
    """folder for finished work that learners share"""
    prior: Any = None
    """unlabelled samples (N, ...) from before the first step, or None"""
    class_texts: ClassTexts | None = None
    """vectors of texts about the classes, or None"""
    shifts: tuple[int, ...] = ()
    """how far ahead of the last revealed label a stream's samples are predicted, in samples (0: the next one)"""

    def cost_of(self, size: int) -> float:
        """Cost of an update on `size` samples of a batch of the stream, of which one pass costs 1; 1 without a
        stream."""
        return 1 / -(-self.batch // size) if self.batch else 1.0


@dataclass(frozen=True)
class Needs:
    """What a learner must be shown. A protocol that cannot show it refuses the learner, and says this reason."""

    first_step: str = ""
    """why its first data must be a whole step, as CLEAR's first bucket or the seed data of ocrr; "" if they may be a
    batch of a stream"""
    whole_steps: str = ""
    """why it cannot learn batch by batch, or correction by correction; "" if it can"""
    all_steps: str = ""
    """why it cannot learn step by step; "" if it can"""
    future: bool = False
    """trains on all steps at once, before any test: an upper bound, refused where later steps are tests"""
    oracle: bool = False
    """trains on the stream's oracle data instead of its steps (Seq-to-Final)"""
    images: bool = False
    """learns from images (H, W, 3) uint8; refused on a stream of vectors"""
    texts: bool = False
    """learns from texts; other learners are refused on a stream of texts"""
    class_texts: bool = False
    """compares samples with texts about the classes, which the stream must have"""
    unlabelled: bool = False
    """learns from unlabelled samples, which the stream must have"""
    single_samples: bool = False
    """on a stream that is learned in batches, learns every sample before it predicts the next"""


Family = Literal[  # in the order of the manual's page of learners
    "references", "closed form", "texts of the classes", "trained heads", "replay", "regularised", "online",
    "nearest neighbours", "adapters and language models", "for the last step",
]  # fmt: skip


@dataclass(frozen=True)
class Guide:
    """A learner's line on the manual's page of learners, which `docs/conf.py` writes."""

    family: Family
    source: str
    """paper; "" for none"""
    cost: str
    """of learning one step. n: its samples, D: their width, C: classes, E: epochs, M: memory or random features, N: all
    samples so far. A product of two numbers counts once"""
    use: str
    """when to use it"""


class Learner(ABC):
    """`begin` and `learn` must be written, and one method that answers: `scores` or `predict`.

    `scores(x)` gives scores (N, C); the class of the highest is the answer, the first of equal ones, and their softmax
    the probabilities. A learner without such scores writes `predict` instead. Of a class and its bases the one answers
    that is defined last. Everything else is an ability that a learner has or has not: see `driftline.eval.abilities`.

    A learner's settings are its dataclass fields; `Annotated[int, Field(ge=0)]` and `Literal` declare ranges and
    choices, which are checked before any work. Answering works before anything was learned, and never learns. Arrays
    are not copied: do not modify them. Learners never receive test splits.
    """

    needs: ClassVar[Needs] = Needs()
    """what it must be shown"""
    obeys: ClassVar[bool] = False
    """trains the network that `Task.rules` prescribe, with their grid and validation; under a protocol that has rules
    the rows of other learners stand apart"""
    blind: ClassVar[bool] = False
    """never looks at a sample: what labels alone give"""
    knows: ClassVar[bool] = False
    """answers better than chance before it has learned anything: from texts about the classes, or as a model of others.
    The others stand at 1 / C there, whatever class an untrained network names"""
    budgeted: ClassVar[Sequence[str]] = ()
    """settings that a budget of updates (`Task.updates`) replaces; there they are refused and not recorded"""
    of_corrections: ClassVar[Sequence[str]] = ()
    """settings of corrections; they may not be changed under a protocol that brings none"""
    unused: ClassVar[Mapping[str, str]] = {}
    """setting of a base class that changes nothing → why; it may not be changed"""
    guide: ClassVar[Guide | None] = None
    """its line in the page of learners, which lists driftline's own"""
    reaches: ClassVar[Mapping[str, str]] = {}
    """setting → what it names outside the run: "a file", "a model" or "an address"; nobody repeats a run of a stranger
    that has such a setting"""
    gradient_steps: int = 0
    """updates of the weights so far, reported with every score"""
    cost: float = 1.0
    """cost of one update, in updates of plain SGD (one forward and one backward pass over a batch)"""
    batch_cost: float = 0.0
    """cost of learning a batch besides its updates, in updates on all of the batch"""
    extra: float = 0.0
    """updates that were spent on it so far"""

    @abstractmethod
    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """Start a run: forget everything."""

    @abstractmethod
    def learn(self, x: Array, y: Labels) -> None:
        """Learn a batch x (N, ...), y (N,), in stream order."""

    def scores(self, x: Array) -> Array:
        """x (N, ...) → scores (N, C) float32 or float64. Raises BadPlugin for a learner that has no way to answer."""
        raise BadPlugin(f"{type(self).__name__} has neither scores nor predict.", "Expected one of them.")

    def predict(self, x: Array) -> Labels | tuple[Labels, Array]:
        """x (N, ...) → labels (N,) int64; or labels, and beside them how probable the learner thinks that each is right
        (N,), 0 … 1, or the probability of every class (N, C). Default: the labels of `scores`."""
        return np.asarray(self.scores(x).argmax(1), np.int64)

    def settings(self) -> dict[str, Any]:
        """The dataclass fields, as plain data."""
        if not is_dataclass(self):
            return {}
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init}
