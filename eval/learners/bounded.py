"""The substrate's vote over a memory of fixed size: a reservoir, or the newest samples [OCRR]."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import NonNegativeFloat, PositiveInt

from driftline.curate.core.executor import one_thread
from driftline.eval.learner import Array, Guide, Labels, Learner, Task
from driftline.eval.learners.substrate import agreement, votes
from driftline.eval.memory.knn_index import QuerySlices, unit


@dataclass
class BoundedReservoir(Learner):
    """`substrate` on a memory of fixed size: a uniform sample of everything seen [Vitter's algorithm R]."""

    capacity: PositiveInt = 1000
    """samples in memory"""
    k: PositiveInt = 5
    """neighbours"""
    margin: NonNegativeFloat = 0.05
    """neighbours vote if their cosine is at most this much below the nearest one's"""

    guide = Guide("nearest neighbours", "OCRR", "n M D", "neighbours in a memory of fixed size")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        self.rng, self.seen = rng, 0
        self.x = np.zeros((self.capacity, int(np.prod(task.x_shape))), np.float32)
        self.y = np.zeros(self.capacity, np.int64)
        self.order = np.zeros(self.capacity, np.int64)  # position of each in the stream
        self.slices: QuerySlices | None = None

    def slot(self) -> int | None:
        """Place of the next sample; None: it is not kept."""
        if self.seen < self.capacity:
            return self.seen
        drawn = int(self.rng.integers(0, self.seen + 1))
        return drawn if drawn < self.capacity else None

    def learn(self, x: Array, y: Labels) -> None:
        """Offer the samples to the memory, one after the other."""
        import torch

        with one_thread():  # NumPy's product would wake all cores
            for row, label in zip(unit(x), np.asarray(y).tolist(), strict=True):
                place = self.slot()
                if place is not None:
                    self.x[place], self.y[place], self.order[place] = row, label, self.seen
                    if self.slices is not None:
                        self.cosines[:, place] = torch.from_numpy(self.queries).mv(torch.from_numpy(row)).numpy()
                self.seen += 1

    def prepare(self, x: Sequence[Array]) -> None:
        """Compute their cosines with the memory once; a sample that enters changes one column."""
        import torch

        self.slices = QuerySlices(x)
        self.queries = self.slices.vectors()
        with one_thread():
            self.cosines = (torch.from_numpy(self.queries) @ torch.from_numpy(self.x).T).numpy()

    def predict(self, x: Array) -> Labels | tuple[Labels, Array]:
        """The vote, 0 before anything was learned, and the share of the neighbours that have the answer's label."""
        if not self.seen:
            return np.zeros(len(x), np.int64), np.zeros(len(x))
        cosines, places = self.nearest(x)
        answers = votes(cosines, self.y[places], self.order[places], self.margin, "band")
        return answers, agreement(self.y[places], answers)

    def nearest(self, x: Array) -> tuple[Array, Array]:
        """Cosines and places (m, k) of the nearest samples in memory, best first."""
        import torch

        n = min(self.seen, self.capacity)
        with one_thread():
            rows = None if self.slices is None else self.slices.rows_of(x)
            if rows is None:
                cosines = torch.from_numpy(unit(x)) @ torch.from_numpy(self.x[:n]).T
            else:
                cosines = torch.from_numpy(self.cosines[rows, :n])
            best, places = (t.numpy() for t in cosines.topk(min(self.k, n), sorted=True))
        return best, places

    def stored_bytes(self) -> int:
        """Samples and labels in memory."""
        n = min(self.seen, self.capacity)
        return int(self.x[:n].nbytes + self.y[:n].nbytes)


@dataclass
class BoundedFifo(BoundedReservoir):
    """`substrate` on the newest samples; seed data in the order of classes leave few classes in it."""

    guide = Guide("nearest neighbours", "OCRR", "n M D", "as above, the newest samples")

    def slot(self) -> int | None:
        return self.seen % self.capacity
