"""A submitted run, scored again from its records: the protocol runs with the recorded answers in place of a learner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import DriftlineError, IncompatibleStream, crashed
from driftline.curate.core.seeding import rng_for
from driftline.eval.learner import Array, Labels, Learner, Task
from driftline.eval.learners import LEARNERS
from driftline.eval.outcomes import numbered
from driftline.eval.protocol import Protocol, Start, stored_protocol
from driftline.eval.rows import Answers, Row, Run
from driftline.stream_builder.stream import Stream

META = ("tested_on", "n", "learned_to", "seen", "corrections")  # what a protocol decides, not a learner


class Replay(Learner):
    """Gives recorded answers in their order, whatever it is asked; 0 after the last."""

    def __init__(self, kind: type[Learner], records: Sequence[Answers]) -> None:
        self.needs = kind.needs  # type: ignore[misc]  # a protocol treats it as it treats the learner
        nothing = np.zeros(0, np.int64)
        self.answers: Labels = np.concatenate([nothing, *(np.asarray(a.predicted, np.int64) for a in records)])
        unknown = [np.full(len(a), np.nan) if a.confidence is None else np.asarray(a.confidence) for a in records]
        self.confidences: npt.NDArray[np.float64] = np.concatenate([np.zeros(0), *unknown])
        self.next = 0

    def begin(self, task: Task, rng: np.random.Generator) -> None:
        self.next = 0

    def predict(self, x: Array) -> Labels | tuple[Labels, Array]:
        """The next answers; no confidence where one is not recorded."""
        answers, confidence = (rows[self.next : self.next + len(x)] for rows in (self.answers, self.confidences))
        self.next += len(x)
        missing = len(x) - len(answers)
        labels = np.concatenate([answers, np.zeros(missing, np.int64)])
        return labels if missing or np.isnan(confidence).any() else (labels, confidence)

    def learn(self, x: Array, y: Labels) -> None:
        """Nothing."""

    def learn_from(self, past: Any) -> None:
        """Nothing."""


def replayed(run: Run, stream: Stream, records: Sequence[Answers]) -> list[Row]:
    """The rows that a run's protocol gives on the stream for recorded answers. Raises DriftlineError for a protocol
    that cannot run."""
    about = run.about
    kind = stored_protocol(about["protocol"])
    unreachable = {key: getattr(kind, key, "") for key in kind.reaches}  # never a folder of this machine
    try:
        protocol: Protocol = kind(**{**about["protocol_settings"], **unreachable})
        protocol.check(stream)
        if about["steps"] != len(stream.steps):
            raise IncompatibleStream(f"it says {about['steps']} steps, the stream has {len(stream.steps)}")
        name = about["learner"].partition("(")[0].strip()
        built_in = name in LEARNERS  # code of the submission is not imported
        replay = Replay(LEARNERS[name] if built_in else Learner, records)
        start = Start(replay, rng_for(about["seed"], about["protocol"], "walk"), about["seed"])
        ((_, ran),) = protocol.run_many(numbered(stream), [start])
    except (MemoryError, DriftlineError):
        raise
    except Exception as error:  # any error that hostile settings cause
        raise crashed(error) from None
    if isinstance(ran, Exception):
        raise ran if isinstance(ran, DriftlineError) else crashed(ran)
    return ran.rows


def rescored(run: Run, stream: Stream) -> str:
    """How the rows of a run, with records, differ from what the protocol gives on the stream for the recorded answers:
    other samples, labels, tests or counts; "" if they do not. Answers are the only thing that is believed."""
    try:
        rows = replayed(run, stream, [row.answers for row in run.rows if row.answers is not None])
    except DriftlineError as error:
        return f"its protocol cannot run on the stream: {error}"
    if len(rows) != len(run.rows):
        return f"it has {len(run.rows)} rows; the protocol gives {len(rows)}"
    for k, (row, expected) in enumerate(zip(run.rows, rows, strict=True)):
        if difference := _difference(row, expected):
            return f"row {k}: {difference}"
    return ""


def _difference(row: Row, expected: Row) -> str:
    for name in META:
        if (value := getattr(row, name)) != (right := getattr(expected, name)):
            return f"its {name} is {value!r}; the protocol gives {right!r}"
    if bool(row.class_n) != bool(expected.class_n):
        return "its counts of classes are not those of the protocol"
    if row.answers is None or expected.answers is None:
        same = row.answers is expected.answers
        return "" if same else "it has no records" if row.answers is None else "it has records of no test"
    for name, what in (("sample", "samples"), ("label", "labels")):
        if not np.array_equal(getattr(row.answers, name), getattr(expected.answers, name)):
            return f"its {what} are not those of the stream"
    label, right = row.answers.label, row.answers.label == row.answers.predicted
    if row.n_correct != int(right.sum()):
        return f"it says {row.n_correct} right answers, its records have {int(right.sum())}"
    counts = [np.bincount(of, minlength=len(row.class_n)).tolist() for of in (label, label[right])]
    if row.class_n and [list(row.class_n), list(row.class_correct)] != counts:
        return "its counts of classes are not those of its records"
    return ""
