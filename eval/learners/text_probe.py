"""Linear heads that start from the texts of the classes, and their mean with the zero-shot head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field, PositiveFloat

from driftline.curate.core.errors import BadConfig
from driftline.eval.engine.linear import Head, net_scores
from driftline.eval.learner import Array, Guide, Needs, Task
from driftline.eval.training.sgd_learner import NetLearner


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
