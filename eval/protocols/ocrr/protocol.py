"""The protocol with its settings; scores from rows: where novel and original accuracy end, and how many corrections it
took [OCRR]."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from driftline.curate.core.atomic_io import fingerprint
from driftline.curate.core.errors import BadArray, BadInput
from driftline.curate.core.seeding import rng_for
from driftline.eval.experiment.presets import fitting
from driftline.eval.history import check_label_time
from driftline.eval.learner import Learner, Task
from driftline.eval.learners import LEARNERS
from driftline.eval.learners.online import chosen_rate
from driftline.eval.memory.correction_ledger import Ledger, verify
from driftline.eval.protocol import Protocol, Result, Roles, Score, rehearsal, require, shares
from driftline.eval.protocols.ocrr import loop
from driftline.eval.rows import Row, folder_name
from driftline.eval.settings import NO_EFFECT
from driftline.stream_builder.stream import Stream

Floats = npt.NDArray[np.float64]
TARGETS = (10, 30, 50, 70, 90)  # per cent
NAMED = (50, 70, 90)  # among the scores; the others are measures
REACHED = {n: Score(f"corrections_to_{n}", f"corrections to {n} %", False, "corrections") for n in TARGETS}
SCORES = (
    Score("novel", "novel"),
    Score("original", "original"),
    Score("worst", "min(novel, original)"),
    *(REACHED[n] for n in NAMED),
)
MEASURES = (
    Score("start_novel", "novel at the start"),
    Score("start_original", "original at the start"),
    Score("on_the_stream", "right on the stream"),
    Score("corrections", "corrections", False, "corrections"),
    *(REACHED[n] for n in TARGETS if n not in NAMED),
    Score("recall", "recall of the search"),
    Score("prediction_us", "µs a prediction", False, "microseconds"),
    Score("correction_us", "µs a correction", False, "microseconds"),
)


def curve(rows: Sequence[Row], tested_on: str) -> tuple[list[int], list[float]]:
    """Corrections and accuracy at every test. Raises BadInput for a test of no samples."""
    tests = [row for row in rows if row.tested_on == tested_on]
    if any(row.n == 0 for row in tests):
        raise BadInput(f"A {tested_on} test has no samples.", "Expected at least one.")
    return [row.corrections for row in tests], [row.n_correct / row.n for row in tests]


def decisive(rows: Sequence[Row]) -> list[Row]:
    """The last tests, novel and original."""
    return [next(row for row in reversed(rows) if row.tested_on == name) for name in ("novel", "original")]


def _costs(rows: Sequence[Row]) -> dict[str, float]:
    """Microseconds of a prediction and of a correction, and the lowest recall of any test."""
    costs = {"recall": min(row.recall for row in rows if row.tested_on != "cost")}
    for row in rows:
        if row.tested_on == "cost":
            costs["prediction_us"] = 1e6 * row.asking / max(row.n, 1)
            costs["correction_us"] = 1e6 * row.correcting / max(row.corrections, 1)
    return costs


SYSTEMS = ("ewc", "agem", "lwf")  # of OCRR, with own defaults that are CLEAR's
CONSTANT = "the best constant answer"
CHOSEN_ON = 2000  # samples of the seed data on which settings are chosen


@dataclass(frozen=True)
class Ocrr(Protocol):
    """Recovery from a shift by online correction: seed data, then samples that are predicted and corrected if wrong.

    Scores: accuracy at the end on novel and on original samples, and the lower of both for each seed; how many
    corrections were received when accuracy on novel samples was first 50 %, 70 % or 90 %."""

    policy: str = "oracle"
    """which errors are corrected, when and how well, as in `random_50+delayed:20` (see `loop`)"""
    scenario: loop.Kind = "auto"
    """what is novel (see `loop.cut`)"""
    held_out: Annotated[int, Field(ge=1)] = 10
    """novel classes of the scenario categorical"""
    order: Literal["shuffled", "file"] = "shuffled"
    """of the seed data; "file": as the reference"""
    every: Annotated[int, Field(ge=1)] = 50
    """samples between two test moments"""
    tests: Annotated[int, Field(ge=1)] = 400
    """samples of each test set at most"""
    mix: Annotated[float, Field(ge=0)] = 0.0
    """samples of the original distribution in the stream, for each novel one; they are not in the seed data"""
    ledger: Annotated[str, NO_EFFECT] = ""
    """a folder for a record of every correction: one file for each learner, stream, policy and seed; a file that exists
    is never replaced"""

    scores = SCORES
    measures = MEASURES
    primary = "worst"
    refuses = ("all_steps", "whole_steps")
    late_labels = True
    # worst: the lower of two accuracies; of a test without samples, the other's
    roles = Roles(decisive=decisive, pooled=lambda right, n: np.fmin.reduce(shares(right, n), -1), fresh=("stream",))
    reaches = MappingProxyType({"ledger": "a folder"})

    def __post_init__(self) -> None:
        super().__post_init__()
        loop.policy_of(self.policy)

    def check(self, stream: Stream) -> None:
        """Raise IncompatibleStream if a step lacks a split, or a part of the scenario would be empty; BadArray for
        samples of two shapes or vectors that are not finite, which would reach the memories of learners."""
        check_label_time(stream)
        require(stream, ("train", "test"), "ocrr needs both.")
        for step in stream.steps:
            for split in ("train", "test"):
                x, which = step[split].x, f"{stream.name!r}, {split} split of step {step.name!r}"
                if x.shape[1:] != stream.x_shape:
                    raise BadArray(f"{which}: samples of shape {x.shape[1:]}.", f"Expected {stream.x_shape}.")
                if x.dtype.kind == "f" and not (finite := np.isfinite(x).reshape(len(x), -1).all(1)).all():
                    problem = f"{which}: x at index {int(finite.argmin())} holds NaN or infinity."
                    raise BadArray(problem, "Expected finite numbers.")
        self.cut(stream, 0)

    def unused(self) -> dict[str, str]:
        """The number of held-out classes where none is held out."""
        none = self.scenario not in ("auto", "categorical")
        return {"held_out": f"the scenario {self.scenario} holds out no class"} if none else {}

    def cut(self, stream: Stream, seed: int) -> loop.Scenario:
        """The four parts for a seed."""
        shuffled = self.order == "shuffled"
        return loop.cut(stream, self.scenario, self.held_out, self.tests, shuffled, self.mix, seed)

    def task(self, stream: Stream) -> Task:
        """Classes (the label space is disclosed, as the reference's heads need), shape."""
        return Task(len(stream.classes), stream.x_shape, classes=tuple(stream.classes))

    def defaults(self, learner: Learner) -> dict[str, Any]:
        """Online heads choose their learning rates; the systems of OCRR have the paper's settings."""
        name = next((name for name in SYSTEMS if type(learner) is LEARNERS[name]), None)
        return chosen_rate(learner) if name is None else fitting("ocrr", {name: type(learner)})[name]

    def trials(self, stream: Stream, rng: np.random.Generator, seed: int) -> list[tuple[Protocol, Stream]]:
        """At most 2,000 samples of the seed data, in one step or, if the last step is novel, in three."""
        data = self.cut(stream, seed).seed
        data = data.take(np.sort(rng.permutation(len(data))[:CHOSEN_ON]))
        labels, y = np.unique(data.y, return_inverse=True)
        later = len(stream.steps) > 1 and self.scenario in ("auto", "temporal")
        texts = stream.class_texts and stream.class_texts.of(labels.tolist())
        named = replace(stream, classes=[stream.classes[label] for label in labels.tolist()], class_texts=texts)
        part = rehearsal(named, replace(data, y=y.astype(np.int64)), rng, 3 if later else 1)
        protocol = replace(self, held_out=min(self.held_out, max(1, len(labels) // 2)), ledger="")
        protocol.check(part)
        return [(protocol, part)]

    def run(self, stream: Stream, learner: Learner, rng: np.random.Generator, seed: int = 0) -> Iterator[Row]:
        """Rows tested on "novel", "original" and "stream"."""
        scenario, draws = self.cut(stream, seed), rng_for(seed, "ocrr", self.policy)
        ledger = Ledger(self._ledger_of(stream, learner, seed)) if self.ledger else None
        with ledger or nullcontext():
            policy, classes = loop.policy_of(self.policy), list(stream.classes)
            yield from loop.recover(scenario, learner, policy, self.every, classes, draws, ledger)

    def facts(self, stream: Stream, learner: Learner, seed: int) -> dict[str, Any]:
        """What one answer for all samples reaches; name, number of entries, head and root of the run's ledger."""
        told = {"told": {"references": {CONSTANT: constant_answer(self.cut(stream, seed))}}}
        if not self.ledger:
            return told
        path = self._ledger_of(stream, learner, seed)
        verdict = verify(path)
        return told | {
            "ledger": {"file": path.name, "entries": verdict.entries, "head": verdict.head, "root": verdict.root}
        }

    def _ledger_of(self, stream: Stream, learner: Learner, seed: int) -> Path:
        """The ledger of a run: named by learner, its settings if they are not the default, stream, policy and seed."""
        kind, settings = type(learner).__name__.lower(), learner.settings()
        digest = "" if settings == type(learner)().settings() else f"-{fingerprint(settings)[:8]}"
        of_run = f"{folder_name(stream.name)}-{folder_name(self.policy)}-seed{seed}"
        return Path(self.ledger) / f"{kind}{digest}-{of_run}.ledger"

    def score(self, rows: Sequence[Row], steps: int) -> Result:
        """novel, original, worst (the lower of both), corrections_to_50, _70, _90 (None: never); accuracies at the
        start, costs; the curve."""
        at, novel = curve(rows, "novel")
        _, original = curve(rows, "original")
        on_stream = [row for row in rows if row.tested_on == "stream"]
        tests = [row for row in rows if row.tested_on == "novel"]
        tests_of = list(zip(at, novel, strict=True))
        firsts = {n: next((given for given, value in tests_of if value >= n / 100), 0) for n in TARGETS}
        # None: never, or before the first correction, which measures no recovery
        reached = {n: float(given) if given else None for n, given in firsts.items()}
        scores: dict[str, float | None] = {
            "novel": novel[-1],
            "original": original[-1],
            "worst": min(novel[-1], original[-1]),
        }
        scores |= {REACHED[n].name: reached[n] for n in NAMED}
        right = sum(row.n_correct for row in on_stream) / sum(row.n for row in on_stream)
        measures = {"start_novel": novel[0], "start_original": original[0], "on_the_stream": right}
        measures["corrections"] = float(at[-1])
        others = {REACHED[n].name: reached[n] for n in TARGETS if n not in NAMED}
        columns = {key: [getattr(row, key) for row in tests] for key in ("seen", "stored", "recall")}
        over_corrections: dict[str, Sequence[float]] = {"at": at, "value": novel, "original": original, **columns}
        return Result(scores, measures | others | _costs(rows), curve=over_corrections)


def constant_answer(scenario: loop.Scenario) -> float:
    """The lower of both accuracies of the class for which it is highest."""
    size = 1 + max(int(part.y.max()) for part in (scenario.novel, scenario.original))
    shares = [np.bincount(part.y, minlength=size) / len(part) for part in (scenario.novel, scenario.original)]
    return float(np.minimum(*shares).max())
