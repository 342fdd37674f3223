"""Zero-shot classification: the class whose texts are nearest to an image, in the space of one encoder."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pydantic import PositiveFloat

from driftline.eval.learner import Array, Guide, Labels, Learner, Needs, Task
from driftline.eval.training.closed_form import Floats

NEVER = -1e9  # score of a class without texts


@dataclass
class ZeroShot(Learner):
    """The class with the largest cosine between the sample and the mean of the class's text vectors; nothing is learned
    [Radford et al. 2021, sec. 3.1]. Classes without texts are never answered."""

    logit_scale: PositiveFloat = 100.0
    """of cosines before the softmax [Radford et al. 2021, sec. 2.5: 100 after training]"""

    needs = Needs(class_texts=True)
    knows = True
    guide = Guide("texts of the classes", "Radford et al. 2021", "nothing", "row 0 of every table on vectors of CLIP")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        assert task.class_texts is not None  # check_stream refuses a stream without
        self.task = task
        self.texts = task.class_texts.ensemble(task.n_classes)  # (C, D)
        self.silent = ~self.texts.any(1)

    def learn(self, x: Array, y: Labels) -> None:
        """Ignored."""

    def scores(self, x: Array) -> Floats:
        """(N, C): one product, whose rows are divided by the samples' lengths."""
        rows = np.asarray(x, np.float32)
        lengths = np.sqrt(np.einsum("nd,nd->n", rows, rows))
        scores = np.asarray(rows @ self.texts.T, np.float64)
        scores *= (self.logit_scale / np.maximum(lengths, 1e-12))[:, None]
        scores[:, self.silent] = NEVER
        return scores
