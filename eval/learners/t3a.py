"""T3A: class prototypes that move with test samples, without labels [Iwasawa & Matsuo 2021]."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from pydantic import NonNegativeInt

from driftline.curate.core.errors import IncompatibleStream
from driftline.curate.core.vectors import unit
from driftline.eval.engine.scores import softmax
from driftline.eval.learner import Array, Guide, Labels
from driftline.eval.training.sgd_learner import NetLearner


@dataclass
class T3a(NetLearner):
    """A trained linear head whose weights become the first member of each class's support set; test samples join the
    set of the class that the trained head answers, the surest stay, and the sets' means answer [Iwasawa & Matsuo 2021,
    eq. 3-7, algorithm 1; matsuolab/T3A]. Without test samples it is the trained head. The means have no bias."""

    support: NonNegativeInt = 100
    """M, samples of least entropy that a class keeps [sec. 4.1: 1 to 100]; 0: all"""

    unused = MappingProxyType({"augment": "it is a head on vectors"})
    guide = Guide("adaptation without labels", "Iwasawa & Matsuo 2021", "E n D C",
                  "classes look different at test time, and no label comes")  # fmt: skip

    def reset(self) -> None:
        super().reset()
        self.start()

    def start(self) -> None:
        """Forget test samples."""
        self.members: Any = None

    def learn(self, x: Array, y: Labels) -> None:
        self.start()
        super().learn(x, y)

    def adapt(self, batch: Any) -> dict[str, Any]:
        """Add the batch to the support sets. Raises IncompatibleStream for another network than linear."""
        if self.net != "linear":
            raise IncompatibleStream(f"net is {self.net!r}.", "Expected linear: T3A moves the weights of a head.")
        x = self.inputs(batch.x)
        x = unit(x, x.dtype)
        if self.members is None:
            weights = self.head.params[0].cpu().numpy()
            self.members = (unit(weights, weights.dtype), np.arange(len(weights)), self._entropy(weights))
        rows, labels, entropy = self.members
        answers = self.scores(batch.x).argmax(1)
        rows, labels = np.concatenate([rows, x]), np.concatenate([labels, answers])
        entropy = np.concatenate([entropy, self._entropy(self.inputs(batch.x))])
        if self.support:
            order = np.argsort(entropy, kind="stable")
            supports = np.sort(np.concatenate([order[labels[order] == k][: self.support] for k in np.unique(labels)]))
            rows, labels, entropy = rows[supports], labels[supports], entropy[supports]
        self.members = (rows, labels, entropy)
        return {"support": len(labels)}

    def _entropy(self, x: Array) -> Any:
        """Entropy (N,) of the trained head's probabilities."""
        import torch

        with torch.inference_mode():
            scores = self.head.scores(torch.from_numpy(np.array(x, np.float32)).to(self.place))
            return -(torch.softmax(scores, 1) * torch.log_softmax(scores, 1)).sum(1).cpu().numpy()

    def prototypes(self, x: Array) -> Any:
        """Scores (N, C): products with the mean of each class's set, of unit length."""
        rows, labels, _ = self.members
        sums = np.zeros((self.task.n_classes, rows.shape[1]), np.float32)
        np.add.at(sums, labels, rows)
        return x @ unit(sums, sums.dtype).T

    def predict(self, x: Array) -> Labels | tuple[Labels, Array]:
        """The trained head's answer and probabilities; after adaptation the class of the highest score, which is no
        probability."""
        if self.members is None:
            scores = self.scores(x)
            return np.asarray(scores.argmax(1), np.int64), softmax(scores)
        return np.asarray(self.prototypes(self.inputs(x)).argmax(1), np.int64)
