"""Stream → rows → numbers: protocols, learners, scores, report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.curate.core.lazy_face import lazy_face

if TYPE_CHECKING:
    from driftline.eval.learner import Learner as Learner
    from driftline.eval.learner import Task as Task
    from driftline.eval.learners import LEARNERS as LEARNERS
    from driftline.eval.protocol import PROTOCOLS as PROTOCOLS
    from driftline.eval.protocol import Protocol as Protocol
    from driftline.eval.protocol import Result as Result
    from driftline.eval.protocol import Score as Score
    from driftline.eval.reporting.report import report as report
    from driftline.eval.results import Results as Results
    from driftline.eval.rows import Row as Row
    from driftline.eval.run import evaluate as evaluate
else:
    __getattr__, __dir__, __all__ = lazy_face(
        __name__,
        {
            "LEARNERS": "driftline.eval.learners:LEARNERS",
            "Learner": "driftline.eval.learner:Learner",
            "PROTOCOLS": "driftline.eval.protocol:PROTOCOLS",
            "Protocol": "driftline.eval.protocol:Protocol",
            "Result": "driftline.eval.protocol:Result",
            "Results": "driftline.eval.results:Results",
            "Row": "driftline.eval.rows:Row",
            "Score": "driftline.eval.protocol:Score",
            "Task": "driftline.eval.learner:Task",
            "evaluate": "driftline.eval.run:evaluate",
            "report": "driftline.eval.reporting.report:report",
        },
    )
