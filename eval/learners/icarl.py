"""iCaRL's classifier on frozen features: nearest mean of exemplars that herding chose [Rebuffi et al. 2017]."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pydantic import PositiveInt

from driftline.eval.learner import Array, Guide, Labels, Learner, Task
from driftline.eval.memory.knn_index import unit


@dataclass
class Icarl(Learner):
    """Nearest mean of exemplars [Rebuffi et al. 2017, alg. 1]; exemplars are chosen by herding [alg. 4; the authors'
    code, srebuffi/iCaRL, follows the same sums] and dropped from the end of their list [alg. 5]. The features are
    frozen, so that its network training [alg. 3] has no part in it.

    The paper's classes come once. Where a class comes again, herding chooses among its exemplars and the new samples,
    towards the mean of all its samples so far.
    """

    memory: PositiveInt = 2000
    """exemplars of all classes together, K [sec. 4: 2,000]"""

    guide = Guide("replay", "Rebuffi et al. 2017", "n D + M² D / C",
                  "a small memory on frozen features, nothing trained")  # fmt: skip

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        width = int(np.prod(task.x_shape))
        self.sums, self.counts = np.zeros((task.n_classes, width)), np.zeros(task.n_classes)
        self.exemplars = [np.zeros((0, width), np.float32) for _ in range(task.n_classes)]  # best first

    def learn(self, x: Array, y: Labels) -> None:
        """Choose exemplars of the classes that came, and shorten the lists of the others."""
        rows = unit(x)
        np.add.at(self.sums, y, rows)
        np.add.at(self.counts, y, 1)
        share = max(1, self.memory // max(1, int((self.counts > 0).sum())))
        for k in np.unique(y).tolist():
            candidates = np.concatenate([self.exemplars[k], rows[np.asarray(y) == k]])
            self.exemplars[k] = candidates[herded(candidates, self.sums[k] / self.counts[k], share)]
        self.exemplars = [of_class[:share] for of_class in self.exemplars]

    def predict(self, x: Array) -> Labels:
        """The class whose exemplars' mean, of unit length, is nearest; 0 before anything was learned."""
        means = np.stack([e.mean(0) if len(e) else np.zeros(e.shape[1]) for e in self.exemplars])
        cosines = unit(x) @ unit(means).T  # of unit vectors, the nearest has the largest
        cosines[:, [not len(e) for e in self.exemplars]] = -np.inf
        return np.asarray(cosines.argmax(1), np.int64)


def herded(x: npt.NDArray[np.float32], mean: npt.NDArray[np.float64], m: int) -> npt.NDArray[np.int64]:
    """Positions of m samples of x (n, D), each chosen so that the mean of the chosen is nearest to `mean` [alg. 4]."""
    chosen: list[int] = []
    total, left = np.zeros(x.shape[1]), np.ones(len(x), bool)
    for k in range(1, min(m, len(x)) + 1):
        # |mean - (total + x) / k|² without what is the same for all: the samples have unit length
        gain = np.where(left, x @ (k * mean - total), -np.inf)
        best = int(gain.argmax())
        chosen.append(best)
        left[best] = False
        total += x[best]
    return np.array(chosen, np.int64)
