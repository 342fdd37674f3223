"""Task and Learner: what every method under every protocol is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from curate.core.errors import BadConfig
from eval.history import Past
from stream_builder.stream import Step

Labels = npt.NDArray[np.int64]
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Task:
    """n_classes: C. x_shape: shape of one sample. steps: number of time steps, where the protocol discloses it. batch:
    samples that a stream brings at a time. updates: how many updates of the weights (a forward and a backward pass over
    a batch) each batch of the stream pays for; None where time is no matter. classes: names, where they are told.
    rules: what a protocol lays down for its methods. seed: of the run, the same for every learner. prior: unlabelled
    samples from before the first step, or None. store: a folder for finished work that learners share."""

    n_classes: int
    x_shape: tuple[int, ...]
    steps: int | None = None
    batch: int | None = None
    updates: float | None = None
    classes: tuple[str, ...] = ()
    rules: Any = None
    seed: int = 0
    store: Path | None = None
    prior: Any = None


class Learner(ABC):
    """Three verbs must be written; the others have honest defaults.

    A learner's settings are its dataclass fields. `predict` is legal before anything was learned, and never
    learns. Learners are handed copies of nothing and test splits of nothing: arrays must not be changed.
    """

    gradient_steps: int = 0  # updates of the weights so far, reported beside every score
    cost: float = 1.0  # passes over a batch that an update takes, in those of plain SGD: one forward, one backward
    needs_whole_steps: str = ""  # why it cannot learn batch by batch, where it cannot

    @abstractmethod
    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """Forget all."""

    @abstractmethod
    def predict(self, x: Array) -> Labels:
        """x (N, ...) → labels (N,) int64."""

    @abstractmethod
    def learn(self, x: Array, y: Labels) -> None:
        """A batch arrives, in stream order."""

    def learn_from(self, past: Past) -> None:
        """The newest batch of a time-ordered stream has come; all of `past` may be learned from. Default: learn the
        newest batch."""
        self.learn(*past.newest())

    def learn_step(self, step: Step) -> None:
        """A whole time step arrives; default: one batch."""
        train = step["train"]
        self.learn(train.x, train.y)

    def learn_sequence(self, steps: Sequence[Step]) -> None:
        """All steps are there at once; default: one after the other."""
        for step in steps:
            self.learn_step(step)

    def correct(self, x: Array, y: Labels) -> None:
        """One corrected sample (1, ...), (1,); default: learn it."""
        self.learn(x, y)

    def prepare(self, x: Sequence[Array]) -> None:  # noqa: B027  most learners have nothing to prepare
        """Samples that will be asked for, without labels: a learner may prepare, and must answer as if it had not."""

    def confidence(self, x: Array) -> npt.NDArray[np.float64] | None:
        """How sure it is of each answer (N,), 0 … 1; None where it cannot tell."""
        return None

    def recall(self, x: Array) -> float:
        """Share of the nearest of x that its search finds; 1 where search is exact or there is none."""
        return 1.0

    def stored_bytes(self) -> int:
        """Bytes kept between batches: weights, buffers, indices."""
        return bytes_of([value for name, value in vars(self).items() if name not in ("rng", "task")])

    def metadata(self) -> dict[str, Any]:
        """What else the run's record should say, as plain data."""
        return {}

    def samples_trained(self, sizes: Sequence[int]) -> float:
        """Samples that training looks at, over steps of these sizes: what an estimate of the time begins with."""
        return 0.0

    def settings(self) -> dict[str, Any]:
        """The dataclass fields, as plain data."""
        if not is_dataclass(self):
            return {}
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init}


def check_variant(variant: str) -> None:
    """Raise BadConfig for a variant that is neither the paper's definition nor what its reference code does."""
    if variant not in ("paper", "reference"):
        raise BadConfig(f"variant is {variant!r}.", "Expected paper or reference.")


def bytes_of(value: Any) -> int:
    """Bytes of all arrays and tensors in plain data: lists, tuples, dicts, objects of driftline."""
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    if isinstance(value, dict):
        return sum(bytes_of(v) for v in value.values())
    if isinstance(value, list | tuple):
        return sum(bytes_of(v) for v in value)
    return bytes_of(vars(value)) if type(value).__module__.startswith("eval.") else 0
