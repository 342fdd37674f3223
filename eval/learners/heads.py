"""Linear heads that are fitted to seed data and then corrected sample by sample, or not at all [OCRR]."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from curate.core.torch_threads import one_thread
from eval.engine.linear import grown
from eval.learner import Array, Labels, Task
from eval.memory.knn_index import Memory, Watched
from eval.training.sgd_learner import NetLearner


@dataclass
class OnlineLinear(NetLearner):
    """A softmax head fitted by AdamW, then one step of SGD for every correction [OCRR: rate 0.01, decay 1e-4, 30
    epochs; corrections 0.05]."""

    optimiser: str = "adamw"
    lr: float | None = 0.01
    weight_decay: float = 1e-4
    epochs: int = 30
    decay_after: int = 30
    scale: str = "none"
    classes: str = "closed"

    def correct(self, x: Array, y: Labels) -> None:
        """One step of SGD. classes "open": a class that nobody declared gets a row of zeros first; "closed": it is
        refused."""
        missing = int(np.max(y)) + 1 - len(self.head.params[-1])
        if self.classes == "open" and missing > 0:
            self.head = grown(self.head, missing)
        super().correct(x, y)


@dataclass
class StaticLinear(OnlineLinear):
    """The same head; corrections are not heard."""

    def correct(self, x: Array, y: Labels) -> None:
        """Not heard."""


@dataclass
class KnnLm(StaticLinear):
    """Half a frozen head, half the nearest of all samples: softmax of their cosines at a temperature [Khandelwal et al.
    2020; OCRR: k 5, temperature 0.1]."""

    k: int = 5
    temperature: float = 0.1
    share: float = 0.5

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """An empty memory beside the head."""
        super().begin(task, rng)
        self.memory = Memory(int(np.prod(task.x_shape)))
        self.labels: list[Labels] = []
        self.watched: Watched | None = None

    def learn(self, x: Array, y: Labels) -> None:
        """The head is fitted, and all is kept."""
        super().learn(x, y)
        self.correct(x, y)

    def correct(self, x: Array, y: Labels) -> None:
        """Append; the head stays."""
        with one_thread():
            self.memory.add(x)
            self.labels.append(np.array(y, np.int64))
            if self.watched is not None:
                self.watched.grew(self.memory)

    def prepare(self, x: list[Array]) -> None:  # type: ignore[override]
        """Their nearest are found at once, and kept up to date by what is appended."""
        with one_thread():
            self.watched = Watched(self.memory, x, self.k)

    def predict(self, x: Array) -> Labels:
        """Class of the highest mixed probability."""
        return np.asarray(self.mixed(x).argmax(1), np.int64) if self.memory.n else super().predict(x)

    def confidence(self, x: Array) -> npt.NDArray[np.float64] | None:
        """The answer's mixed probability."""
        return self.mixed(x).max(1) if self.memory.n else super().confidence(x)

    def mixed(self, x: Array) -> npt.NDArray[np.float64]:
        """(m, C) probabilities."""
        import torch

        found = None if self.watched is None else self.watched.found(x)
        self.labels = [np.concatenate(self.labels)]
        with one_thread(), torch.inference_mode():
            cosines, positions = self.memory.search(np.asarray(x), self.k) if found is None else found
            head = torch.softmax(self.head.scores(torch.from_numpy(np.array(self.inputs(x)))), 1).numpy()
        near = np.exp((cosines - cosines[:, :1]) / self.temperature)
        near /= near.sum(1, keepdims=True)
        mixed = (1 - self.share) * head
        np.add.at(mixed, (np.arange(len(x))[:, None], self.labels[0][positions]), self.share * near)
        return np.asarray(mixed)

    def stored_bytes(self) -> int:
        """Vectors, labels and the head."""
        return self.memory.nbytes + self.memory.n * 8 + sum(int(p.nbytes) for p in self.head.params)
