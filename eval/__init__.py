"""Stream → rows → numbers: protocols, learners, scores, report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from curate.core.lazy_face import lazy_face

if TYPE_CHECKING:
    from eval.learner import Learner as Learner
    from eval.learner import Task as Task
    from eval.learners import LEARNERS as LEARNERS
    from eval.protocol import PROTOCOLS as PROTOCOLS
    from eval.protocol import Protocol as Protocol
    from eval.protocol import Result as Result
    from eval.protocol import Score as Score
    from eval.reporting.report import report as report
    from eval.results import Results as Results
    from eval.rows import Row as Row
    from eval.run import evaluate as evaluate
else:
    __getattr__, __dir__, __all__ = lazy_face(
        __name__,
        {
            "LEARNERS": "eval.learners:LEARNERS",
            "Learner": "eval.learner:Learner",
            "PROTOCOLS": "eval.protocol:PROTOCOLS",
            "Protocol": "eval.protocol:Protocol",
            "Result": "eval.protocol:Result",
            "Results": "eval.results:Results",
            "Row": "eval.rows:Row",
            "Score": "eval.protocol:Score",
            "Task": "eval.learner:Task",
            "evaluate": "eval.run:evaluate",
            "report": "eval.reporting.report:report",
        },
    )
