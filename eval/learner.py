"""Task and Learner: what every method under every protocol is."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadPlugin
from driftline.eval.history import Past
from driftline.stream_builder.class_texts import ClassTexts
from driftline.stream_builder.step import Step

Labels = npt.NDArray[np.int64]
Array = npt.NDArray[Any]
Scores = npt.NDArray[np.float32]
NO_ANSWER = -1  # in place of a class: wrong for each label

APART = ("rng", "task")  # attributes of a learner that are not its own memory


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
    unlabelled: Any = None
    """unlabelled samples (N, ...) from before the first step, or None"""
    class_texts: ClassTexts | None = None
    """vectors of texts about the classes, or None"""
    shifts: tuple[int, ...] = ()
    """how far ahead of the last revealed label a stream's samples are predicted, in samples (0: the next one)"""
    corrections: bool = True
    """whether the protocol may bring corrections, one by one"""

    def budgeted(self, *settings: str) -> dict[str, str]:
        """For `Learner.unused`: settings that a budget of updates replaces, if there is one."""
        return {} if self.updates is None else dict.fromkeys(settings, "all learners share a budget of updates")

    def of_corrections(self, *settings: str) -> dict[str, str]:
        """For `Learner.unused`: settings of corrections, if the protocol brings none."""
        return {} if self.corrections else dict.fromkeys(settings, "the protocol brings no corrections")

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
    """`begin` and `learn` must be written, and one method that answers: `scores` or `predict`. All else has a default.

    `scores(x)` gives scores (N, C); the class of the highest is the answer, the first of equal ones, and their softmax
    the probabilities. A learner without such scores writes `predict` instead. Of a class and its bases the one answers
    that is defined last.

    A learner's settings are its dataclass fields; `Annotated[int, Field(ge=0)]` and `Literal` declare ranges and
    choices, which are checked before any work. Answering works before anything was learned, and never learns. Arrays
    are not copied: do not modify them. Learners never receive test splits, and no caller writes into one. A learner
    whose state is not plain data has Python's `__getstate__` and `__setstate__`, by which it is copied and stored.
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
        """x (N, ...) → labels (N,) int64, -1 for no answer; or labels, and beside them how probable the learner thinks
        that each is right (N,), 0 … 1, or the probability of every class (N, C). Default: the labels of `scores`, none
        where one is NaN."""
        return best(self.scores(x))

    def predict_ahead(self, x: Array, shift: int) -> Labels | tuple[Labels, Array]:
        """As `predict`, for samples that come `shift` samples after the next one."""
        return self.predict(x)

    def learn_step(self, step: Step) -> None:
        """Learn a whole time step. Default: its training samples as one batch."""
        self.learn(step["train"].x, step["train"].y)

    def learn_sequence(self, steps: Sequence[Step]) -> None:
        """Learn all steps, which are available at once. Default: one after the other."""
        for step in steps:
            self.learn_step(step)

    def learn_from(self, past: Past) -> None:
        """Learn after the newest batch of a time-ordered stream, from any sample of the past. Default: the batch."""
        self.learn(*past.newest())

    def correct(self, x: Array, y: Labels) -> None:
        """Learn one corrected sample (1, ...), (1,). Default: a batch of one."""
        self.learn(x, y)

    def prepare(self, x: Sequence[Array]) -> None:  # noqa: B027  no need to write it
        """Samples that will be predicted, without labels: it may precompute, but its answers must not change."""

    def settings(self) -> dict[str, Any]:
        """The dataclass fields, as plain data."""
        if not is_dataclass(self):
            return {}
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init}

    def unused(self, task: Task) -> dict[str, str]:
        """Setting that changes nothing under this task beside the other settings → why. Who sets it is refused."""
        return {}

    def candidates(self) -> dict[str, list[Any]]:
        """Values to choose from, for each setting that is "auto"; among equally good ones the first is chosen."""
        return {}

    def samples_trained(self, sizes: Sequence[int]) -> float:
        """Samples that training processes over steps of these sizes, the basis of a time estimate; default: each
        once."""
        return float(sum(sizes))

    def recall(self, x: Array) -> float:
        """Share of the nearest neighbours of x that its search finds; 1: it is exact, or there is none."""
        return 1.0

    def stored_bytes(self) -> int:
        """Bytes kept between batches: weights, buffers, indices. Default: of all arrays and tensors in its
        attributes, but the task's."""
        slots = [name for base in type(self).__mro__ for name in getattr(base, "__slots__", ())]
        own = {name: getattr(self, name, None) for name in slots} | getattr(self, "__dict__", {})
        return bytes_of([value for name, value in own.items() if name not in APART])

    def metadata(self) -> dict[str, Any]:
        """Further facts for the run's record, as plain data."""
        return {}

    def spent(self) -> float:
        """Computation so far, in updates of plain SGD on a batch of the stream."""
        return self.gradient_steps * self.cost + self.extra


def bytes_of(value: Any) -> int:
    """Bytes of all arrays and tensors in plain data: lists, tuples, dicts, objects of driftline."""
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    if isinstance(value, dict):
        return sum(bytes_of(v) for v in value.values())
    if isinstance(value, list | tuple):
        return sum(bytes_of(v) for v in value)
    return bytes_of(vars(value)) if type(value).__module__.startswith("driftline.eval.") else 0


def best(scores: npt.NDArray[Any]) -> Labels:
    """Scores (N, C) → the best class (N,) of each row; `NO_ANSWER` where a score is NaN."""
    labels = scores.argmax(1)  # of a row with NaN, its place
    labels[np.isnan(scores[np.arange(len(scores)), labels])] = NO_ANSWER
    return np.asarray(labels, np.int64)


def sureness(scores: Scores, labels: Labels) -> npt.NDArray[np.float64]:
    """Scores (N, C) and their best classes (N,) → softmax probability (N,) of these; 0: none, or no finite scores."""
    with np.errstate(invalid="ignore"):  # class after class: rows are too short to be added quickly
        apart = np.subtract(scores, scores[np.arange(len(scores)), labels, None], order="F")
        total = np.add.reduce(np.exp(apart, apart), 1)
        return np.fmax(np.divide(1, total, dtype=np.float64), 0)  # of NaN and 0, `fmax` takes 0


def small(labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """In the smallest type that holds them."""
    if not len(labels):
        return labels.astype(np.uint8)
    # One pass for both ends: as unsigned numbers, those below 0 are the highest.
    unsigned = labels.view(np.uint64) if labels.dtype == np.int64 else labels.astype(np.int64).view(np.uint64)
    top = int(np.maximum.reduce(unsigned, axis=None))
    # `np.min_scalar_type` takes as long as the rest.
    kinds: dict[int, Any] = {8: np.uint8, 16: np.uint16, 32: np.uint32, 63: np.uint64}
    return labels.astype(next((kind for bits, kind in kinds.items() if top < 2**bits), np.int64))
