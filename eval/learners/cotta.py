"""CoTTA: a teacher that averages weights over time, and weights that are restored at random [Wang et al. 2022]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, cast

from pydantic import Field, PositiveFloat, PositiveInt

from driftline.eval.engine.augment import augmented, draw
from driftline.eval.engine.deep import Deep, planes
from driftline.eval.engine.linear import on
from driftline.eval.engine.seeded import seeded
from driftline.eval.learner import Array, Guide
from driftline.eval.learners.batch_norm import BnStats, batch_statistics

Share = Annotated[float, Field(ge=0, le=1)]


@dataclass
class Cotta(BnStats):
    """A student follows the answers of a teacher, whose weights are an average of the student's; a share of the
    student's weights goes back to those of training after each batch [Wang et al. 2022, sec. 3, eq. 1-8, alg. 1]. The
    teacher answers. All use the statistics of the batch, as in the authors' code.

    The teacher's answers are averaged over augmented views if the trained network is not sure of the batch. The views
    are flips, shifts and small rotations; the authors' also change colours, blur and add noise. The teacher answers
    after its update; the authors' code takes its answers from before.
    """

    adapt_lr: PositiveFloat = 1e-3
    """learning rate of Adam [the authors' code, qinenergy/cotta, cifar/cfgs/cifar10/cotta.yaml: 0.001]"""
    teacher_decay: Share = 0.999
    """of the teacher's weights [same file: 0.999]"""
    restore: Share = 0.01
    """p, share of the student's weights that are restored [same file: 0.01]"""
    sure: Share = 0.92
    """p_th, mean confidence of the trained network below which views are averaged [same file: 0.92]"""
    views: PositiveInt = 32
    """N [cifar/cotta.py: 32]"""

    guide = Guide("adaptation without labels", "Wang et al. 2022, CVPR", "three networks",
                  "as tent, if no reset may be made for long")  # fmt: skip

    def start(self) -> Any:
        import torch

        self.student = cast(Deep, self.head).copy()
        self.descent = torch.optim.Adam(self.student.module.parameters(), lr=self.adapt_lr)
        return cast(Deep, self.head).copy()

    def update(self, x: Array, shown: Any) -> dict[str, Any]:
        import torch

        images = on(self.inputs(x), self.head)
        with torch.no_grad(), batch_statistics(self.head), batch_statistics(self.adapted):
            anchor = float(torch.softmax(cast(Deep, self.head).module(shown), 1).max(1)[0].mean())
            answers = self.adapted.module(shown)
            if anchor < self.sure:
                views = [
                    self.adapted.module(planes(augmented(images, draw(tuple(images.shape), VIEWS, self.rng))))
                    for _ in range(self.views)
                ]
                answers = torch.stack(views).mean(0)
        with torch.enable_grad(), batch_statistics(self.student):
            off: Any = -(torch.softmax(answers, 1) * torch.log_softmax(self.student.module(shown), 1)).sum(1).mean()
            self.descent.zero_grad()
            off.backward()
            self.descent.step()
        with torch.no_grad(), seeded(self.rng):
            sources = zip(
                self.adapted.module.parameters(), self.student.module.parameters(),
                cast(Deep, self.head).module.parameters(), strict=True,
            )  # fmt: skip
            for teacher, student, trained in sources:
                teacher.mul_(self.teacher_decay).add_(student, alpha=1 - self.teacher_decay)
                back = torch.rand(student.shape) < self.restore
                student.copy_(torch.where(back.to(student.device), trained, student))
        return {"anchor": round(anchor, 4), "views": self.views if anchor < self.sure else 0}


VIEWS = ("flip", "crop", "rotate")
