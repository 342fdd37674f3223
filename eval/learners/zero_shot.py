"""Learners on the texts of the classes: zero-shot, heads that start from the texts, and the mean of both."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field, PositiveFloat

from driftline.curate.core.errors import BadConfig
from driftline.eval.engine.linear import Head, net_scores
from driftline.eval.learner import Array, Guide, Labels, Learner, Needs, Task
from driftline.eval.training.closed_form import Floats
from driftline.eval.training.sgd_learner import NetLearner

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


@dataclass
class TextProbe(NetLearner):
    """A softmax head whose first weights are the text vectors times `text_scale`; each step continues from the last
    [Wortsman et al. 2022, sec. 2: linear classifier on CLIP features]."""

    text_scale: PositiveFloat = 30.0
    """of the text vectors as first weights; with CLIP's own 100 training hardly moves them"""

    needs = Needs(class_texts=True)
    knows = True
    guide = Guide("texts of the classes", "Wortsman et al. 2022", "E n D C", "few samples, or classes that come late")

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        """Start from the texts. Raises BadConfig for another network than linear."""
        if self.net != "linear":
            raise BadConfig(f"net is {self.net!r}.", "Expected linear: its weights start from text vectors.")
        super().begin(task, rng)

    def unused(self, task: Task) -> dict[str, str]:
        """What other networks use."""
        return super().unused(task) | dict.fromkeys(("hidden", "augment"), "it is a linear head on vectors")

    def reset(self) -> None:
        import torch

        super().reset()
        assert self.task.class_texts is not None  # check_stream refuses a stream without
        texts = torch.from_numpy(self.task.class_texts.ensemble(self.task.n_classes) * np.float32(self.text_scale))
        self.head.params[0].copy_(texts)
        self.head.params[1].zero_()
        self.texts = texts.clone().to(self.place)


@dataclass
class WiseFt(TextProbe):
    """Answers with (1 - α) times the zero-shot head plus α times the trained one; training continues from the trained
    one [Wortsman et al. 2022, sec. 3, eq. 1]."""

    alpha: Annotated[float, Field(ge=0, le=1)] = 0.5
    """α [sec. 3: 0.5]"""

    guide = Guide("texts of the classes", "Wortsman et al. 2022", "E n D C",
                  "training must not cost accuracy on other years")  # fmt: skip

    def mixed(self) -> Head:
        """The head that answers."""
        weights, bias = self.head.params
        params = [(1 - self.alpha) * self.texts + self.alpha * weights, self.alpha * bias]
        return Head(params, [], False)

    def scores(self, x: Array) -> Array:
        return net_scores(self.mixed(), self.inputs(x))
