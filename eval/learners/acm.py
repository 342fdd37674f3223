"""ACM: nearest neighbours among all samples seen, by cosine; nothing is trained [near-future accuracy, sec. 5]."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from pydantic import NonNegativeInt, PositiveInt

from driftline.curate.core.errors import IncompatibleStream
from driftline.curate.core.executor import one_thread
from driftline.eval.engine.deep import CHUNK, Deep
from driftline.eval.engine.linear import tensor
from driftline.eval.learner import Array, Guide, Labels, Learner, Task
from driftline.eval.memory.knn_index import MEASURED, Memory
from driftline.eval.training.sgd_learner import Device, place


@dataclass
class Acm(Learner):
    """Votes of the k nearest samples; ties go to the class of the nearest, so that k = 2 answers exactly as k = 1."""

    k: PositiveInt = 2
    """neighbours"""
    exact_below: NonNegativeInt = 1_000_000
    """samples up to which the search is exact; above, a faiss index is used and its recall is measured"""
    limit_mb: NonNegativeInt = 4096
    """main memory for samples; the rest is kept in files"""
    net: str = ""
    """a timm model whose features of images are compared, as resnet50 in the paper; it is never trained; empty: the
    samples themselves"""
    weights: str = ""
    """checkpoint of the model, or a tag of timm such as tv_in1k, instead of random weights"""
    device: Device = "cpu"
    """cpu, cuda or auto; of the model"""

    reaches = MappingProxyType({"weights": "a file"})
    guide = Guide("nearest neighbours", "near-future accuracy, sec. 5", "n N D", "all samples may be stored")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """Start with an empty memory. Raises IncompatibleStream for samples that are no images if `net` is given."""
        self.model, width = None, int(np.prod(task.x_shape))
        if self.net:
            if len(task.x_shape) != 3 or task.x_shape[-1] != 3:
                problem = f"net is {self.net!r}, which takes images; the samples have shape {task.x_shape}."
                raise IncompatibleStream(problem, "Expected uint8 images (H, W, 3).", "Leave net empty on features.")
            self.model = Deep.new(self.net, task.n_classes, (), rng, place(self.device), False, weights=self.weights)
            width = int(self.model.params[-2].shape[1])
        self.memory = Memory(width, self.exact_below, self.limit_mb)
        self.labels: list[Labels] = []

    def compared(self, x: Array) -> Array:
        """What is compared: the samples, or the model's features of them."""
        import torch

        if self.model is None:
            return np.asarray(x)
        self.model.module.eval()
        with torch.inference_mode():
            images = (tensor(np.asarray(x[low : low + CHUNK]), place(self.device)) for low in range(0, len(x), CHUNK))
            return np.concatenate([self.model.features(part).float().cpu().numpy() for part in images])

    def learn(self, x: Array, y: Labels) -> None:
        with one_thread():
            x = self.compared(x)
            self.memory.measure(x[:MEASURED], self.k)  # before they are added: they would find themselves
            self.memory.add(x)
            self.labels.append(np.array(y, np.int64))

    def predict(self, x: Array) -> Labels | tuple[Labels, Array]:
        """The vote, 0 before anything was learned, and the share of the neighbours that have the answer's label."""
        if not self.memory.n:
            return np.zeros(len(x), np.int64), np.zeros(len(x))
        near = self._near(x)
        answers = voted(near)
        return answers, np.asarray((near == answers[:, None]).mean(1), np.float64)

    def _near(self, x: Array) -> Labels:
        """(m, k) labels of the nearest, nearest first."""
        self.labels = [np.concatenate(self.labels)]
        with one_thread():
            _, positions = self.memory.search(self.compared(x), self.k)
        return self.labels[0][positions]

    def metadata(self) -> dict[str, Any]:
        """Recall of the index at several sizes, if one is used."""
        return {"recall": [list(pair) for pair in self.memory.recalls]} if self.memory.recalls else {}


def voted(near: Labels) -> Labels:
    """(m, k) labels of neighbours, nearest first → (m,) the most frequent; ties: the class of the nearest neighbour."""
    votes = (near[:, :, None] == near[:, None, :]).sum(2)  # (m, k): how many agree with each
    return np.asarray(near[np.arange(len(near)), votes.argmax(1)], np.int64)
