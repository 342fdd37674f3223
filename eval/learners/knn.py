"""k nearest neighbours whose votes decay with age."""

from dataclasses import dataclass

import numpy as np
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from driftline.curate.core.executor import one_thread
from driftline.eval.learner import Array, Guide, Labels, Learner, Task
from driftline.eval.memory.knn_index import Memory
from driftline.eval.training.sgd_learner import Device, place


@dataclass
class Knn(Learner):
    """The k nearest by cosine vote with exp(cosine / temperature) [Wu et al. 2018, sec. 3.4] times 2^(-age / h).

    `acm` and `substrate` are the rules of two papers, without decay.
    """

    k: PositiveInt = 20
    """neighbours"""
    temperature: PositiveFloat = 0.07
    """of the votes [Wu et al. 2018: 0.07]"""
    half_life: NonNegativeFloat = 0.0
    """samples after which the vote of a sample has halved; 0: age does not count"""
    exact_below: NonNegativeInt = 1_000_000
    """samples up to which the search is exact; above, a faiss index is used"""
    device: Device = "cpu"
    """cpu, cuda or auto; of the products, which change no answer"""

    guide = Guide("nearest neighbours", "Wu et al. 2018", "n N D", "neighbours whose votes decay with age")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        self.task = task
        self.memory = Memory(int(np.prod(task.x_shape)), self.exact_below, device=place(self.device))
        self.labels: list[Labels] = []

    def learn(self, x: Array, y: Labels) -> None:
        with one_thread():
            self.memory.add(x)
        self.labels.append(np.array(y, np.int64))

    def predict(self, x: Array) -> Labels | tuple[Labels, Array]:
        """The class with most votes, 0 before anything was learned, and its share of the votes."""
        if not self.memory.n:
            return np.zeros(len(x), np.int64), np.full(len(x), 1 / self.task.n_classes)
        self.labels = [np.concatenate(self.labels)]
        with one_thread():
            cosines, positions = self.memory.search(x, self.k)
        power = cosines.astype(np.float64) / self.temperature
        if self.half_life:
            power -= (self.memory.n - 1 - positions) * np.log(2) / self.half_life
        weights = np.exp(power - power.max(1, keepdims=True))
        votes = np.zeros((len(x), int(max(self.task.n_classes, self.labels[0].max() + 1))))
        np.add.at(votes, (np.arange(len(x))[:, None], self.labels[0][positions]), weights)
        return np.asarray(votes.argmax(1), np.int64), votes.max(1) / votes.sum(1)

    def stored_bytes(self) -> int:
        """Vectors and labels."""
        return self.memory.nbytes + self.memory.n * 8
