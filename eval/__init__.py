"""Stream → rows → numbers: protocols, learners, scores, report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from curate.core.lazy_face import lazy_face

if TYPE_CHECKING:
    from eval.learner import Learner as Learner
    from eval.learner import Task as Task
    from eval.learners import LEARNERS as LEARNERS
    from eval.protocol import PROTOCOLS as PROTOCOLS
    from eval.run import evaluate as evaluate
else:
    __getattr__, __dir__, __all__ = lazy_face(
        __name__,
        {
            "LEARNERS": "eval.learners:LEARNERS",
            "Learner": "eval.learner:Learner",
            "PROTOCOLS": "eval.protocol:PROTOCOLS",
            "Task": "eval.learner:Task",
            "evaluate": "eval.run:evaluate",
        },
    )
