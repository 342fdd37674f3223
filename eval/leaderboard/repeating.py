"""One run of a submission, repeated, or scored again from its records: then the protocol runs with the recorded answers
in place of a learner. What settings of a stranger name is parsed, and decided by what learners and protocols declare
that they reach."""

import json
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from driftline.curate.core.errors import BadConfig, DriftlineError, IncompatibleStream, crashed
from driftline.curate.core.late import torch
from driftline.curate.core.seeding import rng_for
from driftline.eval.learner import Array, Labels, Learner, Task
from driftline.eval.learners import LEARNERS
from driftline.eval.predictions import numbered
from driftline.eval.protocol import Protocol, Start, stored_protocol
from driftline.eval.rows import Answers, Row, Run, counted
from driftline.eval.run import evaluate
from driftline.eval.settings import parsed, setting_names
from driftline.stream_builder.stream import Stream

MODULE = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")  # package.module:Name as a whole value; dynamic:0.5 is none
IDENTITY = ("protocol", "protocol_settings", "learner", "settings", "seed", "steps")
META = ("tested_on", "n", "learned_to", "seen", "corrections")  # what a protocol decides, not a learner


def own_code(about: Mapping[str, Any], modules: Container[str]) -> str:
    """The module of a submission that its learner is in; "" if driftline or an installed package has the learner."""
    module, colon, _ = about["learner"].partition("(")[0].strip().partition(":")
    return module if colon and module in modules else ""


def reach(about: Mapping[str, Any], coded: bool = False) -> str:
    """What a run names outside itself, as "endpoint names an address"; "" if nothing. Such a run is not repeated: a
    submission must not write to a folder of this machine, load a file from it, import code, or send requests and keys
    to an address.

    about: of a run whose learner and protocol are registered. coded: its learner is code of the submission, whose
    settings only that code knows. Raises BadConfig for settings that they do not have.
    """
    name, in_name = parsed(about["learner"])
    learner, protocol = None if coded else LEARNERS[name], stored_protocol(about["protocol"])
    settings = dict(about["settings"])
    tuned = settings.pop("tune", {})
    if not isinstance(tuned, dict):
        raise BadConfig(f"tune is {tuned!r}.", "Expected settings and their candidates.")
    sources = [(learner, in_name), (learner, settings), (learner, tuned), (protocol, about["protocol_settings"])]
    for kind, values in sources:
        if kind is None:
            continue
        if unknown := sorted(set(values) - set(setting_names(kind))):
            raise BadConfig(f"{kind.__name__} has no setting {unknown[0]!r}.", "Expected settings of its class.")
        for key, value in values.items():
            if value and key in kind.reaches:
                return f"{key} names {kind.reaches[key]}"
            if any(MODULE.fullmatch(text.strip()) for text in _texts(value)):
                return f"{key} names a Python module"
    for kind in filter(None, (learner, protocol)):
        if by_default := [key for key in kind.reaches if getattr(kind, key, "")]:
            return f"{by_default[0]} names {kind.reaches[by_default[0]]}"
    return ""


def _texts(value: Any) -> Iterator[str]:
    """All texts in plain data."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


def repeat(run: Run, stream: Stream) -> tuple[str, str, float]:
    """Run one run of a submission again: how it differs, why it could not be run here, and the share of its answers
    that differ."""
    if str(run.about["settings"].get("device", "cpu")).startswith("cuda") and not torch.cuda.is_available():
        return "", "it ran on cuda, which is not here", 0.0
    try:
        differs, share = compared(run, stream)
    except MemoryError:
        return "", "it needs more memory than there is here", 0.0
    except Exception as error:  # any error that hostile settings cause
        text = str(error) if isinstance(error, DriftlineError) else f"{type(error).__name__}: {error}"
        return f"it cannot be run: {text}", "", 1.0
    return differs, "", share


def compared(run: Run, stream: Stream) -> tuple[str, float]:
    """How a run differs when it is run again, "" if not at all, and the share of its answers that differ: 1 if it is
    another run. Raises what `evaluate` raises, and IncompatibleStream if it was skipped."""
    again = _again(run, stream)
    for key in IDENTITY:
        if _json(again.about[key]) != _json(run.about[key]):
            return f"its {key} are {_json(again.about[key])}, submitted {_json(run.about[key])}", 1.0
    if len(again.rows) != len(run.rows):
        return f"{len(again.rows)} test results, submitted {len(run.rows)}", 1.0
    differs, others = "", 0
    for k, (a, b) in enumerate(zip(again.rows, run.rows, strict=True)):
        if _json(counted(a)) != _json(counted(b)):
            differs = differs or f"row {k} has {a.n_correct} right of {a.n}, submitted {b.n_correct} of {b.n}"
        if (a.tested_on, a.n) != (b.tested_on, b.n):
            return differs, 1.0
        other = abs(a.n_correct - b.n_correct)
        if a.answers is not None and b.answers is not None:
            other = int((a.answers.predicted != b.answers.predicted).sum())
        differs = differs or (f"row {k} has {other} other answers of {a.n}" if other else "")
        others += other
    return differs, others / max(1, sum(row.n for row in run.rows))


def _again(run: Run, stream: Stream) -> Run:
    about, runs = run.about, list[Run]()
    base = about["learner"].partition("(")[0].strip()
    settings = {f"{base}.{key}": value for key, value in about["settings"].items() if key != "tune"}
    settings |= {f"{about['protocol']}.{key}": value for key, value in about["protocol_settings"].items()}
    document = evaluate(
        stream, about["protocol"], [about["learner"]], [about["seed"]], settings,
        tune=about["settings"].get("tune"), keep_run=runs.append,
    )  # fmt: skip
    if document["skipped"]:
        raise IncompatibleStream(document["skipped"][0]["because"])
    return runs[0]


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=list)


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
            raise IncompatibleStream(f"the result has {about['steps']} steps, the stream {len(stream.steps)}")
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
        return f"it has {len(run.rows)} test results; the protocol gives {len(rows)}"
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
    return ""


def miscounted(run: Run) -> str:
    """How the counts of a run's rows differ from its own records; "" if they do not."""
    for k, row in enumerate(run.rows):
        if row.answers is None:
            continue
        label, right = row.answers.label, row.answers.label == row.answers.predicted
        if row.n_correct != int(right.sum()):
            return f"row {k}: it says {row.n_correct} right answers, its records have {int(right.sum())}"
        counts = [np.bincount(of, minlength=len(row.class_n)).tolist() for of in (label, label[right])]
        if row.class_n and [list(row.class_n), list(row.class_correct)] != counts:
            return f"row {k}: its counts of classes are not those of its records"
    return ""
