"""The substrate's vote over a memory of fixed size: a reservoir, or the newest samples [OCRR]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from curate.core.errors import BadConfig
from curate.core.torch_threads import one_thread
from eval.learner import Array, Labels, Learner, Task
from eval.learners.substrate import agreement, votes
from eval.memory.knn_index import Slices, unit


@dataclass
class BoundedReservoir(Learner):
    """A uniform sample of all that was seen [Vitter's algorithm R], answered from as `substrate`."""

    capacity: int = 1000
    k: int = 5
    margin: float = 0.05

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """An empty memory."""
        if self.capacity < 1:
            raise BadConfig(f"capacity is {self.capacity}.", "Expected at least 1.")
        self.rng, self.seen = rng, 0
        self.x = np.zeros((self.capacity, int(np.prod(task.x_shape))), np.float32)
        self.y = np.zeros(self.capacity, np.int64)
        self.order = np.zeros(self.capacity, np.int64)  # which sample of all each is
        self.slices: Slices | None = None

    def slot(self) -> int | None:
        """Where the next sample goes; None: nowhere."""
        if self.seen < self.capacity:
            return self.seen
        drawn = int(self.rng.integers(0, self.seen + 1))
        return drawn if drawn < self.capacity else None

    def learn(self, x: Array, y: Labels) -> None:
        """One after the other."""
        for row, label in zip(unit(x), np.asarray(y).tolist(), strict=True):
            place = self.slot()
            if place is not None:
                self.x[place], self.y[place], self.order[place] = row, label, self.seen
                if self.slices is not None:
                    self.cosines[:, place] = self.asked @ row
            self.seen += 1

    def prepare(self, x: Sequence[Array]) -> None:
        """Their cosines with all that is held; a sample that comes in changes one column."""
        import torch

        self.slices = Slices(x)
        self.asked = self.slices.vectors()
        with one_thread():
            self.cosines = (torch.from_numpy(self.asked) @ torch.from_numpy(self.x).T).numpy()

    def predict(self, x: Array) -> Labels:
        """Before anything was learned: 0."""
        if not self.seen:
            return np.zeros(len(x), np.int64)
        found, places = self.nearest(x)
        return votes(found, self.y[places], self.order[places], self.margin, "band")

    def confidence(self, x: Array) -> npt.NDArray[np.float64] | None:
        """Share of the neighbours that bear the answer's label."""
        if not self.seen:
            return np.zeros(len(x))
        found, places = self.nearest(x)
        return agreement(self.y[places], votes(found, self.y[places], self.order[places], self.margin, "band"))

    def nearest(self, x: Array) -> tuple[Array, Array]:
        """Cosines and places (m, k) of what is held, best first."""
        import torch

        n = min(self.seen, self.capacity)
        with one_thread():
            here = None if self.slices is None else self.slices.where(x)
            if here is None:
                cosines = torch.from_numpy(unit(x)) @ torch.from_numpy(self.x[:n]).T
            else:
                cosines = torch.from_numpy(self.cosines[here, :n])
            found, places = (t.numpy() for t in cosines.topk(min(self.k, n), sorted=True))
        return found, places

    def stored_bytes(self) -> int:
        """Of what is held."""
        n = min(self.seen, self.capacity)
        return int(self.x[:n].nbytes + self.y[:n].nbytes)


@dataclass
class BoundedFifo(BoundedReservoir):
    """The newest samples, answered from as `substrate`; seed rows that come class by class leave few classes."""

    def slot(self) -> int | None:
        """The oldest's place."""
        return self.seen % self.capacity
