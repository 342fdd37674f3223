"""The protocol with its settings."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from driftline.curate.core.errors import BadConfig, IncompatibleStream
from driftline.curate.core.seeding import rng_for
from driftline.eval.abilities import adapt, learn_step
from driftline.eval.answers import answers, sure_answers
from driftline.eval.learner import Learner, Task
from driftline.eval.outcomes import Tally
from driftline.eval.protocol import Protocol, Ran, Result, Roles, Score, Start, mean_of_tests, skip_reason
from driftline.eval.protocols.adaptation.estimates import atc, doc, gde
from driftline.eval.protocols.adaptation.neighbours import neighbours_of
from driftline.eval.protocols.adaptation.unlabelled import Unlabelled
from driftline.eval.rows import Row
from driftline.stream_builder.stream import Split, Step, Stream, join

ESTIMATES = ("atc", "doc", "gde")


def adapted_on(row: Row) -> int | None:
    """The later step that the adapted model is tested on."""
    kind, _, number = row.tested_on.partition("/")
    return int(number) if kind == "adapted" else None


@dataclass(frozen=True)
class Adaptation(Protocol):
    """Labels for the first steps only. Later test samples come in batches without labels: the learner may adapt to a
    batch, then predicts it. The same model without adaptation, and three estimates of its accuracy that need no labels,
    stand beside: would one have noticed how it aged?"""

    source: Annotated[int, Field(ge=1)] = 1
    """steps at the start that are learned with labels"""
    batch: Annotated[int, Field(ge=1)] = 64
    """test samples that come at a time"""
    reset: Literal["step", "never"] = "step"
    """when the learner goes back to its state after the source steps: before each step, or never"""
    order: Literal["shuffled", "as-given"] = "shuffled"
    """in which the test samples of a step come: drawn by the run's seed, or the stream's own. Where neighbours in the
    stream share a label, an adapted model may guess a batch's labels from its most frequent one"""

    scores = (Score("adapted", "adapted"), Score("frozen", "without adaptation"))
    measures = tuple(
        Score(f"{name}_error", f"error of {name.upper()}", higher_is_better=False, unit="share") for name in ESTIMATES
    )
    primary = "adapted"
    corrects = False
    roles = Roles(adapted_on, lambda rows: [row for row in rows if adapted_on(row) is not None], mean_of_tests)
    refuses = ("all_steps", "future")

    def check(self, stream: Stream) -> None:
        """Raise IncompatibleStream for too few steps, or a step without test split."""
        if len(stream.steps) <= self.source:
            problem = f"{stream.name!r} has {len(stream.steps)} steps, of which {self.source} are the source."
            raise IncompatibleStream(problem, "Expected at least one more.", "Use a smaller source.")
        for number, step in enumerate(stream.steps):
            for split in ("train", "test") if number < self.source else ("test",):
                if not len(step.splits.get(split, ())):
                    problem = f"Step {step.name!r} of {stream.name!r} has no {split} split."
                    raise IncompatibleStream(problem, "adaptation tests on every step, and learns from the first.")

    def task(self, stream: Stream) -> Task:
        """Classes, shape."""
        return Task(len(stream.classes), stream.x_shape)

    def training_sizes(self, stream: Stream) -> list[int]:
        """The source."""
        return [len(step["train"]) for step in stream.steps[: self.source]]

    def run(self, stream: Stream, learner: Learner, rng: np.random.Generator, seed: int = 0) -> Iterator[Row]:
        """Rows "adapted/t" and "frozen/t" of later steps, "source", and estimates "atc/t", … as counts. Raises
        IncompatibleStream for a learner that sees all steps at once."""
        yield from self._rows(stream, learner, rng, seed, [])

    def run_many(self, stream: Stream, starts: Sequence[Start]) -> Iterator[tuple[int, Ran | Exception]]:
        """The same; a record has every update at test time: step, position and number of samples, and what the learner
        says of it."""
        for i, start in enumerate(starts):
            log: list[dict[str, Any]] = []
            try:
                rows = list(self._rows(stream, start.learner, start.rng, start.seed, log))
                ran: Ran | Exception = Ran(rows, start.learner, {"test_time_updates": log} if log else {})
            except Exception as error:
                ran = skip_reason(error)
            yield i, ran

    def _rows(
        self, stream: Stream, learner: Learner, rng: np.random.Generator, seed: int, log: list[dict[str, Any]]
    ) -> Iterator[Row]:
        if learner.needs.future:
            raise IncompatibleStream("It learns from all steps at once; here later steps have no labels.")
        begun, name = time.process_time(), type(learner).__name__
        source, twins = stream.steps[: self.source], (deepcopy(learner), deepcopy(learner))
        for step in source:
            learn_step(learner, step.visible())
            for twin, half in zip(twins, _halves(step.visible(), rng), strict=True):
                learn_step(twin, half)
        frozen, model, held = deepcopy(learner), learner, join([step["test"] for step in source])
        labels = np.concatenate([step["train"].y for step in source])
        at = {"learned_to": self.source - 1, "seen": len(labels), "constant": int(np.bincount(labels).argmax())}
        answered, sure, _ = sure_answers(frozen, held.x, len(held))
        right, tally = answered == held.y, Tally("source")
        tally.add(held.position, held.y, answered, sure)
        yield tally.row(by_class=True, seconds=time.process_time() - begun, **at)
        for t, step in enumerate(stream.steps[self.source :], self.source):
            if self.reset == "step":
                model = deepcopy(frozen)
            test, tallies, parts = self.tests_of(step, seed), (Tally(f"adapted/{t}"), Tally(f"frozen/{t}")), []
            for low in range(0, len(test), self.batch):
                part = test.part(low, low + self.batch)
                facts = adapt(model, Unlabelled(part.x, name))
                if facts is not None:
                    log.append({"step": t, "from": low, "samples": len(part), **facts})
                for tally, answering in zip(tallies, (model, frozen), strict=True):
                    sure_of = sure_answers(answering, part.x, len(part), part.most_probable)
                    tally.add(part.position, part.y, *sure_of)
                parts.append([answers(twin, part.x, len(part)) for twin in twins])
            for tally in tallies:
                yield tally.row(by_class=True, seconds=time.process_time() - begun, **at)
            estimates = {"gde": gde(*(np.concatenate(each) for each in zip(*parts, strict=True)))}
            confidence = None if sure is None else sure_answers(frozen, test.x, len(test))[1]
            if sure is not None and confidence is not None:
                estimates |= {"atc": atc(sure, right, confidence), "doc": doc(sure, right, confidence)}
            for kind, value in estimates.items():
                yield Row(f"{kind}/{t}", len(test), round(value * len(test)), at["learned_to"], at["seen"])

    def tests_of(self, step: Step, seed: int) -> Split:
        """A step's test samples in the order in which they come in the run of this seed."""
        test = step["test"]
        if self.order == "as-given":
            return test
        return test.take(rng_for(seed, "adaptation", "order of tests", step.name).permutation(len(test)))

    def facts(self, stream: Stream, learner: Learner, seed: int) -> dict[str, Any]:
        """How far neighbours among the test samples share their label, see `neighbours_of`."""
        labels = [np.asarray(self.tests_of(step, seed).y) for step in stream.steps[self.source :]]
        order = neighbours_of(labels, self.batch)
        return {"told": {"neighbours": order, "references": {"most frequent label of each batch": order["majority"]}}}

    def score(self, rows: Sequence[Row], steps: int) -> Result:
        """adapted, frozen: means over later steps; errors of the estimates."""
        accuracies = {row.tested_on: row.n_correct / row.n for row in rows if row.n}
        later = [key.partition("/")[2] for key in accuracies if key.startswith("frozen/")]

        def mean(kind: str) -> float:
            return float(np.mean([accuracies[f"{kind}/{t}"] for t in later]))

        measures: dict[str, float | None] = {}
        for kind in ESTIMATES:
            off = [
                abs(accuracies[f"{kind}/{t}"] - accuracies[f"frozen/{t}"]) for t in later if f"{kind}/{t}" in accuracies
            ]
            measures[f"{kind}_error"] = float(np.mean(off)) if off else None
        curve: dict[str, Sequence[float]] = {
            "at": [int(t) for t in later],
            "value": [accuracies[f"adapted/{t}"] for t in later],
            "frozen": [accuracies[f"frozen/{t}"] for t in later],
        }
        return Result({"adapted": mean("adapted"), "frozen": mean("frozen")}, measures, curve=curve)

    def trials(self, stream: Stream, rng: np.random.Generator, seed: int) -> list[tuple[Protocol, Stream]]:
        """Raises BadConfig: without labels nothing can be chosen by accuracy on later steps."""
        raise BadConfig("Settings cannot be chosen under adaptation.", "", "Give the setting a value.")


def _halves(step: Step, rng: np.random.Generator) -> list[Step]:
    """The step twice, with a random half of its training samples each, in their order."""
    train = step["train"]
    order = rng.permutation(len(train))
    rows = (np.sort(order[: (len(train) + 1) // 2]), np.sort(order[len(train) // 2 :]))
    return [replace(step, splits={**step.splits, "train": train.take(half)}) for half in rows]
